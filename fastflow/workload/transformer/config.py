from fastflow.workload.transformer.sizes import DEFAULTS


def with_config(leaves):
    if leaves.get("model.name") != "transformer":
        return leaves
    found = {k: v for k, v in leaves.items() if k != "model.config"}
    return found | {k: v for k, v in DEFAULTS.items() if found.get(k) is None}
