"""The fields of a config.json, each read once and checked, and the unread fields."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastflow.core.yaml_file import MAX_NUMBER, MistakeError, one_of, shown, whole, wrong

# Names of unknown fields that change operations, parameters or shapes ...
_RELEVANT = re.compile(
    r"(^|_)(layers?|layer_types|block_types?|heads?|experts?|size|dims?|rank|inner|intermediate|expansion"
    r"|ssm|mamba|conv|linear|cross_attention|encoder|vision|audio|lora|altup|laurel|adapters?|sparse)(_|$)"
    r"|attn_type|^d_|^n_"
)
# ... and names of fields that do not: of sampling, routing, initialisation, sharding, and of the scales of
# queries and logits
_IRRELEVANT = re.compile(
    r"ngram|beam|_token_id|_token$|router|_loss|initial|rope|rotary|scal|multiplier|softcap|dropout|pdrop"
    r"|norm_topk|_eps(ilon)?$|^id2label$|^label2id$|_std$|_range$|max_window_layers|pretraining_tp"
    r"|^(chunk_size_feed_forward|ep_size|n_group|topk_group|n_groups|summary_.*|num_labels|num_return_.*"
    r"|tie_encoder_decoder|attention_chunk_size|seq_aux|scoring_func|topk_method|hybrid_layer_pattern"
    r"|cross_attention_hidden_size|is_decoder|is_encoder_decoder|sample_size|embedding_size|pad_.*"
    r"|query_pre_attn_scalar|input_jitter.*|initial_.*|logit_.*|head_type|layer_norm_.*|layer_norm"
    r"|apply_residual_connection_post_layernorm|num_logits_to_keep|n_ctx|output_router_logits"
    r"|first_layer_.*|skip_bias_add.*|slow_but_exact|num_hidden_layers_.*|mscale.*|partial_.*_factor)$"
)
_ABSENT: tuple[Any, ...] = (None, False, 0, "", [], {})


class Fields:
    """Fields of an object of a file; null counts as absent."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        """Take the values, and the field that they are in, as "attn_config."."""
        self._values, self._where = values, where
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        """Say whether a field is present."""
        return self._values.get(name) is not None

    def names(self) -> list[str]:
        """Return the names of all fields."""
        return list(self._values)

    def value(self, *names: str) -> tuple[str, Any]:
        """Return the name and value of the first field that is present; None if all are absent."""
        self._read.update(names)
        for name in names:
            if self._values.get(name) is not None:
                return self._where + name, self._values[name]
        return self._where + names[0], None

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number; raises MistakeError where it is invalid, or absent without a default."""
        name, value = self.value(*names)
        if value is None and default is not None:
            return default
        if value is None:
            raise MistakeError(f"a file that gives {name}")
        return whole(name, _plain(value), least)

    def counts(self, name: str) -> list[int] | None:
        """Return a list of whole numbers from 0, None if absent; raises MistakeError."""
        where, value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise wrong(where, "a list of whole numbers", _plain(value))
        return [whole(where, _plain(item), 0) for item in value]

    def same(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number, or that of a list whose entries are all the same; raises MistakeError."""
        name, value = self.value(*names)
        if not isinstance(value, list):
            return self.count(*names, default=default, least=least)
        if not value or any(item != value[0] or isinstance(item, bool) for item in value):
            raise wrong(name, "a number, or a list of one number for each layer", _plain(value))
        return whole(name, _plain(value[0]), least)

    def flags(self, name: str, length: int) -> list[bool] | None:
        """Return a list of true and false (or 1 and 0), None if absent; raises MistakeError."""
        where, value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(item in (0, 1) for item in value):
            raise wrong(where, "a list of true and false", _plain(value))
        same_length(where, value, length)
        return [bool(item) for item in value]

    def skip(self, *names: str) -> None:
        """Count fields as read that change nothing of what is predicted."""
        self._read.update(names)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Return true or false; raises MistakeError."""
        name, value = self.value(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong(name, "true or false", _plain(value))
        return value

    def factor(self, *names: str, default: float) -> float:
        """Return a number above 0; raises MistakeError."""
        where, value = self.value(*names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= MAX_NUMBER:
            raise wrong(where, "a number above 0", _plain(value))
        return float(value)

    def choice(self, meanings: Mapping[str, str], *names: str, default: str = "") -> str:
        """Return the meaning of a string; raises MistakeError where it is unknown."""
        name, value = self.value(*names)
        if value is None and default:
            return default
        if not isinstance(value, str) or value not in meanings:
            raise wrong(name, one_of(meanings), _plain(value))
        return meanings[value]

    def choices(
        self, meanings: Mapping[str, Any], name: str, length: int, further: int = 0
    ) -> list[Any] | None:
        """Return the meaning of each string of a list, None if absent; raises MistakeError.

        further: entries after those of the layers that the list may have, which are left out.
        """
        where, value = self.value(name)
        if value is None:
            return None
        if isinstance(value, list) and length < len(value) <= length + further:
            value = value[:length]
        if not isinstance(value, list) or len(value) != length:
            raise wrong(where, f"a list with an entry for each of the {length} layers", _plain(value))
        for item in value:
            if not isinstance(item, str) or item not in meanings:
                raise wrong(where, f"a list of {', '.join(meanings)}", _plain(item))
        return [meanings[item] for item in value]

    def inside(self, name: str) -> Fields:
        """Return the fields of an object; raises MistakeError."""
        where, value = self.value(name)
        if value is not None and not isinstance(value, dict):
            raise wrong(where, "an object", _plain(value))
        return Fields(value or {}, f"{where}.")

    def not_understood(self) -> dict[str, Any]:
        """Return the unread fields that change the model's computation, with their values."""
        return {
            name: value
            for name, value in self._values.items()
            if name not in self._read and not isinstance(value, str) and value not in _ABSENT
            and _RELEVANT.search(name) and not _IRRELEVANT.search(name)
        }  # fmt: skip

    def check_rest(self) -> None:
        """Reject unread fields that change the model's computation; raises MistakeError."""
        for name, value in self.not_understood().items():
            allowed = f"a file without {self._where}{shown(name)}, which fastflow does not know"
            raise MistakeError(f"{allowed} (it is {_plain(value)})")


def _plain(value: Any) -> Any:
    """Return a value as JSON for a message; numbers and strings unchanged."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    return shown(json.dumps(value))


def same_length(where: str, values: Sequence[Any], length: int) -> None:
    """Reject a list without an entry for each layer; raises MistakeError."""
    if len(values) != length:
        raise wrong(where, f"a list with an entry for each of the {length} layers", f"{len(values)} entries")
