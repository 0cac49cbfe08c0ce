"""The composer on plain containers against Hydra's own composition, leaf for leaf."""

import copy
import functools
from datetime import datetime

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import setup_globals
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from fastflow.config import fast_composer
from fastflow.config.composer import Composer
from fastflow.config.hydra_composer import flatten
from fastflow.config.library import hydra_rules, library_root
from fastflow.core.errors import InputError
from fastflow.engine.grid.plan import plan
from tests.support.checks import cases

pytestmark = pytest.mark.long  # Hydra composes each of hundreds of configurations beside us

FILES = {
    "tech/lab.yaml": """
        defaults: [n12, _self_]
        name: lab
        core: {nominal_area: 0.3 mm2}
        source: {default: May, core.nominal_area: a dotted name}""",
    "tech/deeper.yaml": "{defaults: [lab, _self_], generation: 2, source: null}",
    "tech/below.yaml": "{defaults: [_self_, n12], name: what comes later wins, own: 1}",
    "tech/unsaid.yaml": "{defaults: [n12], name: last, core: {nominal_area: '???'}, scaling: '???'}",
    "tech/bare.yaml": "",
    "tech/two.yaml": "{defaults: [_self_, n12, _self_]}",
    "tech/broken.yaml": "name: [",
    "tech/nosuch.yaml": "{defaults: [nowhere, _self_]}",
    "chip/onlab.yaml": """
        defaults: [pathfinding, override /tech@_global_.tech: lab, override /mem@_global_.mem: hbm3]
        tdp: 200 W""",
    "chip/onself.yaml": """
        defaults: [pathfinding, _self_, override /tech@_global_.tech: deeper]
        die_area: ${tech.core.nominal_area}""",
    "chip/late.yaml": "{defaults: [override /tech@_global_.tech: n7, pathfinding]}",
    "chip/unused.yaml": "{defaults: [pathfinding, override /nothing: here]}",
    "chip/fitted.yaml": "{defaults: [pathfinding, extra@pinned: one, _self_], pinned: {b: 3}}",
    "chip/placed.yaml": "{defaults: [pathfinding, extra: one, extra@_global_.model.extra: two]}",
    "chip/several.yaml": "{defaults: [pathfinding, extra: [one, two]]}",
    "chip/perhaps.yaml": "{defaults: [pathfinding, optional extra: none_such]}",
    "chip/chosen.yaml": "{defaults: [pathfinding, extra: '${mem}', _self_]}",
    "chip/nobody.yaml": "{defaults: [pathfinding, extra: null]}",
    "chip/open.yaml": "{defaults: [pathfinding, extra: '???']}",
    "chip/extra/one.yaml": "{a: 1, b: 2}",
    "chip/extra/two.yaml": "{b: 4, c: {d: null, e: {}}}",
    "chip/extra/hbm2.yaml": "{a: of hbm2}",
    "chip/extra/hbm3.yaml": "{a: of hbm3}",
    "mem/everywhere.yaml": "# @package _global_\nmem: {name: everywhere}\nmodel: {batch: 3}",
    "mem/elsewhere.yaml": "# @package net.memory\nname: elsewhere",
    "mem/referring.yaml": "{defaults: [hbm2, _self_], source: '${net.source}', name: '${tech.name}'}",
    "net/merged.yaml": "{defaults: [_self_], source: '${mem.source}', base: '${mem}', text: 'a\\${b}'}",
    "net/onto.yaml": "{defaults: [merged, _self_], base: {name: mine}}",
    "model/kinds.yaml": """
        list: [1, 2.5, a, null, {b: [yes, no]}]
        none: null
        empty: {}
        text: '12'
        nan: .nan
        more: [1, '${model.text}']
        name: kinds
        strategy: d1
        devices: 8""",
    "model/reads.yaml": """
        m: 3
        name: ${tech.name}-${model.m}-${oc.env:fastflow_TEST,unset}
        one: ${.m}
        two: ${model.one}
        three: ${twice:${model.m}}
        four: ${oc.env:fastflow_TEST}
        five: ${tech.scaling}
        six: ${missing_or_not:model.m}
        seven: ${ model.m }
        eight: ${model[m]}
        nine: ${now:%Y}-${now:%Y}
        strategy: ${model.one}
        devices: 2""",
    "model/text.yaml": "{m: '${model.devices}${oc.env:fastflow_TEST} ${tech.name}', devices: 2, strategy: d}",
    "model/select.yaml": """
        m: ${oc.select:nowhere.at.all,true}
        n: ${oc.select:model.nothing,false}
        one: ${oc.select:model.flag,true}
        two: ${oc.select:tech.name,true}
        flag: false
        devices: 2
        strategy: d1""",
    "model/chain.yaml": "{m: 'a ${model.n}', n: '${model.devices}', devices: 2, strategy: d1}",
    "model/custom.yaml": "{m: '${missing_or_not:model.n}', n: 3, devices: 2, strategy: d1}",
    "model/dotted.yaml": "{m: a, m.n: '${oc.env:fastflow_TEST} x', devices: 2, strategy: d1}",
    "model/numbered.yaml": "{1: a, true: b, devices: 1, strategy: d1}",
    "model/lost.yaml": "{m: '${nowhere.at.all}', devices: 1, strategy: d1}",
    "model/circle.yaml": "{m: '${model.n}', n: '${model.m}', devices: 1, strategy: d1}",
    "alone.yaml": """
        defaults: [tech: n7, mem: hbm2, _self_]
        mem: {name: own}
        output: here""",
    "picking.yaml": "{defaults: [_self_, tech: n7, mem: hbm2, chip/extra: '${mem}'], output: here}",
    "lone.yaml": "{mem: {name: own}, output: here}",
    "selfless.yaml": "{defaults: [tech: n7, mem: hbm2], mem: {name: own}}",
    "patch/global.yaml": "# @package _global_\nmodel: {batch: 7}\nchip: {tdp: 1 W}",
    "patch/chooses.yaml": """
        # @package _global_
        defaults: [override /tech: n5, override /mem: hbm4]
        chip: {name: '${tech.name}'}""",
    "patch/again.yaml": "{defaults: [/tech@_global_.tech: n12]}",
    "patch/list.yaml": "# @package _global_\nchip: [1]",
}

PLAIN = [
    (),
    ("tech=n3", "mem=hbm3", "net=gdr_x8"),
    ("tech=lab",),
    ("tech=deeper", "chip.tdp=1 W"),
    ("tech=below",),
    ("tech=bare",),
    ("tech=unsaid",),
    ("chip=a100", "system=cluster"),
    ("chip=v100_sxm", "tech=n5", "system=cluster"),
    ("chip=onlab",),
    ("chip=onlab", "tech=n2", "mem=hbm4"),
    ("chip=onself",),
    ("chip=fitted",),
    ("chip=placed",),
    ("chip=placed", "chip/extra=two"),
    ("chip=placed", "chip/extra@model.extra=one", "chip/extra=hbm2"),
    ("mem=everywhere",),
    ("mem=elsewhere",),
    ("mem=hbm2", "+mem@second=hbm3"),
    ("+sweeps=fig09",),
    ("+patch=global",),
    ("+patch=global", "model.batch=9"),
    ("+patch=chooses",),
    ("+patch=chooses", "tech=n7"),
    ("+patch@chip.patch=global",),
    ("model=kinds",),
    ("model=text",),
    ("model=select",),
    ("model=gemm", "model.m=${model.n}", "model.n=5"),
    ("model=gemm", "model.m=${now:%Y}", "tech.source=3", "chip.area=null"),
    ("model.batch=1", "model.batch=2"),
    ("chip.area=3",),
    ("tech.source=null",),
    ("chip.tdp=???",),
    ("chip.tdp=",),
    ("model.batch=null", "chip.utilization=.5", "chip.tdp='300 W'", "model.name='7'", "model.vocabulary=7"),
    ("+model.more=1", "+new.section.leaf=a b", "++model.batch=4", "++model.other=true"),
    ("+chip.pinned.mcus=4", "engine.jobs=1", "output=there"),
]
BY_HYDRA = [
    ("chip=several",),
    ("chip=perhaps",),
    ("chip=nobody",),
    ("mem=referring",),
    ("net=merged",),
    ("net=merged", "++net.base.name=mine"),
    ("net=onto",),
    ("model=chain",),
    ("model=dotted",),
    ("model=custom",),
    ("model=reads",),
    ("model=reads", "model.m=${chip.mcu.k}"),
    ("model=numbered",),
    ("model=gemm", "~model.m", "~chip.source"),
    ("~tiling",),
    ("~engine=local",),
    ("chip.area={core: 0.5}", "model=gemm"),
    ("+chip.area={new: 0.5, core: 1}",),
    ("chip=[a100,onlab]", "+chip.more=[1,2]", "system=cluster"),
    ("+model={a: 1}",),
    ("++chip.area.core.deep=1",),
]
WRONG = [
    ("tech=n77",),
    ("chip.tpd=3",),
    ("nonsense=3",),
    ("tech.core=n3", "tech.core.no=2"),
    ("+chip.tdp=3",),
    ("~chip.nothing",),
    ("~nothing",),
    ("~chip.tdp=7 W",),
    ("tech=3",),
    ("tech=null",),
    ("++tech=n3",),
    ("+tech=n3",),
    ("tech@here=n3",),
    ("chip.tdp@here=3",),
    ("mem/hbm2=1",),
    ("chip=late",),
    ("chip=unused",),
    ("chip=open",),
    ("chip=chosen",),
    ("tech=two",),
    ("tech=broken",),
    ("tech=nosuch",),
    ("+patch=list",),
    ("+patch=again",),
    ("+mem@second=hbm2", "+mem@second=hbm3"),
    ("+mem@second=hbm3", "+mem@second=hbm2"),
    ("chip.tdp='${'",),
    ("+patch=nosuch",),
    ("chip.tdp=${",),
    ("chip..tdp=3",),
    ("hydra.mode=RUN",),
    ("=3",),
]
UNRESOLVED = [("model=lost",), ("model=circle",), ("model.batch=???",), ("output=${oc.env:NO_SUCH}",)]


@pytest.fixture(autouse=True)
def _rules(monkeypatch):
    monkeypatch.setenv("fastflow_TEST", "set")
    setup_globals()
    OmegaConf.register_new_resolver("twice", lambda value: 2 * value)
    OmegaConf.register_new_resolver("missing_or_not", lambda key, *, _root_: OmegaConf.select(_root_, key))
    with hydra_rules():
        yield
    for name in ("twice", "missing_or_not"):
        OmegaConf.clear_resolver(name)
    setup_globals()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in text.strip("\n").split("\n")))
    return folder


@pytest.fixture
def composer(folder):
    return Composer.of_library(folder)


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch):
    class Stopped(datetime):
        @classmethod
        def now(cls):
            return cls(2026, 1, 2, 3, 4, 5, 678)

    monkeypatch.setattr(fast_composer, "datetime", Stopped)
    monkeypatch.setattr("hydra.core.utils.datetime", Stopped)


def through_hydra(composer):
    """Return a composer that leaves everything to Hydra and OmegaConf."""

    def unusual(*_):
        raise fast_composer.Unusual

    slow = Composer(composer.loader, composer.config_name, origin=composer.origin_of_overrides)
    slow._compose_plain = unusual
    return slow


def leaves_by_hydra(config, resolve):
    """The leaves of Hydra's configuration, without its own node."""
    leaves = {}

    def walk(prefix, value):
        if isinstance(value, dict) and value:
            for name, part in value.items():
                walk(f"{prefix}.{name}", part)
        else:
            leaves[prefix] = value

    config = copy.deepcopy(config)
    with open_dict(config):
        config.pop("hydra", None)
    for name, part in OmegaConf.to_container(config, resolve=resolve).items():
        walk(str(name), part)
    return leaves


def same(got, expected):
    """Compare keys, their order, values and types; a NaN is itself."""
    assert [(key, type(value), repr(value)) for key, value in got.items()] == [
        (key, type(value), repr(value)) for key, value in expected.items()
    ]


def check(composer, overrides):
    composition = composer.compose(overrides)
    full = composer.loader.load_configuration(composer.config_name, list(overrides), RunMode.RUN)
    same(composition.leaves, leaves_by_hydra(full, resolve=False))
    same(flatten(composition.config), leaves_by_hydra(full, resolve=False))
    full_choices = OmegaConf.to_container(full.hydra.runtime.choices)
    assert composition.choices == {
        key: str(value) for key, value in full_choices.items() if not key.startswith("hydra/")
    }
    slow = through_hydra(composer)
    by_hydra = slow.compose(overrides)
    assert composition.defaults == by_hydra.defaults
    assert [file.primary for file in composition.defaults] == [file.primary for file in by_hydra.defaults]
    assert composition.choices == by_hydra.choices
    try:
        expected = leaves_by_hydra(full, resolve=True)
        missing = "???" in map(str, expected.values())
    except OmegaConfBaseException:
        missing = True
    if missing:
        refused_alike(lambda: composer.resolved(composition), lambda: slow.resolved(by_hydra))
    else:
        same(composer.resolved(composition), expected)
    return composition


def refused_alike(ours, theirs):
    with pytest.raises(InputError) as got:
        ours()
    with pytest.raises(InputError) as expected:
        theirs()
    assert str(got.value) == str(expected.value)
    assert "\n" not in str(got.value)


@pytest.mark.parametrize("overrides", PLAIN, ids=" ".join)
def test_ordinary_configurations_are_hydras_without_asking_it(composer, overrides):
    composition = check(composer, overrides)
    assert isinstance(composition.content, dict)


@pytest.mark.parametrize("overrides", BY_HYDRA, ids=" ".join)
def test_unusual_ones_are_hydras_too(composer, overrides):
    check(composer, overrides)


def test_the_public_way_into_hydra_says_the_same():
    overrides = ["tech=n3", "chip=v100_sxm", "system=cluster", "model.batch=7", "output=here"]
    with initialize_config_dir(str(library_root() / "conf"), version_base="1.3"):
        full = compose("config", overrides)
    composer = Composer.of_library()
    same(composer.resolved(composer.compose(overrides)), leaves_by_hydra(full, resolve=True))


@pytest.mark.parametrize("overrides", WRONG, ids=" ".join)
def test_mistakes_have_hydras_line(composer, overrides):
    slow = through_hydra(composer)
    refused_alike(lambda: composer.compose(overrides), lambda: slow.compose(overrides))


@pytest.mark.parametrize("overrides", UNRESOLVED, ids=" ".join)
def test_what_cannot_be_resolved_has_omegaconfs_line(composer, overrides):
    slow = through_hydra(composer)
    refused_alike(
        lambda: composer.resolved(composer.compose(overrides)),
        lambda: slow.resolved(slow.compose(overrides)),
    )


def test_lines_of_mistakes(composer):
    for overrides, says in (
        (["tech=n77"], "tech=n77 (from the overrides) is invalid: expected one of bare, below"),
        (["chip.tpd=3 W"], "did you mean chip.tdp?"),
        (["tech=nosuch"], "tech=nowhere (from "),
        (["+chip.tdp=3"], "+chip.tdp=3 (from the overrides) is invalid: expected its key without +"),
    ):
        with pytest.raises(InputError) as refused:
            composer.compose(overrides)
        assert says in str(refused.value)


@pytest.mark.parametrize("name", ["alone", "picking", "selfless"])
@pytest.mark.filterwarnings("ignore:In 'selfless'")
def test_another_primary_configuration(folder, name):
    composer = Composer.of_library(folder, config_name=name)
    for overrides in ([], ["tech=lab", "+patch=global"], ["+chip=onlab"], ["mem.name=x", "+net=ndr_x8"]):
        check(composer, overrides)
    with pytest.raises(InputError):
        composer.compose(["chip=a100"])
    with pytest.raises(InputError, match="config-name"):
        Composer.of_library(folder, config_name="none").compose([])


def test_a_primary_configuration_of_one_file(folder):
    check(Composer.of_library(folder, config_name="lone"), ["mem.name=mine", "+other=1"])


def test_one_composition_does_not_show_in_another(composer):
    before = composer.compose(["tech=lab", "chip=placed"]).leaves
    for overrides in PLAIN:
        composer.compose(overrides)
    composer.compose(["tech=n12"])
    same(composer.compose(["tech=lab", "chip=placed"]).leaves, before)


def test_times_agree_within_a_composition_and_environment_is_read_anew(composer, monkeypatch):
    setup_globals()
    composition = composer.compose(["output=x"])
    assert composer.resolved(composition)["output"] == "x"
    monkeypatch.setenv("fastflow_TEST", "first")
    assert composer.resolved(composer.compose(["model=reads"]))["model.four"] == "first"
    monkeypatch.setenv("fastflow_TEST", "second")
    assert composer.resolved(composer.compose(["model=reads"]))["model.four"] == "second"


def test_a_grid_over_groups_never_asks_hydra(monkeypatch):
    composer = Composer.of_library()
    monkeypatch.setattr(composer, "_compose_by_hydra", None)
    study = plan(composer, ["chip=pathfinding,a100", "tech=n12,n3", "model.batch=1024,2048"])
    assert study.grid.compositions == composer.compositions == 4


CASES = 500
NAMES = st.sampled_from("abc")
LEAVES = st.sampled_from([*3 * [None, 1, 2.5, True, "x"], "???", "${a}", "${b.c}", [], [1, {"a": 2}]])
TREES = st.dictionaries(NAMES, st.recursive(LEAVES, lambda part: st.dictionaries(NAMES, part), max_leaves=6))


class Decided:
    """Counts what the plain way does with cases that Hydra composes, and with those that it refuses."""

    def __init__(self):
        self.composed = self.left_to_hydra = self.refused = 0

    def note(self, ours, theirs):
        """Compare; ours and theirs return a configuration, or raise that they do not."""
        try:
            expected = theirs()
        except (ConfigCompositionException, OmegaConfBaseException, TypeError, ValueError):
            expected = None
        try:
            got = ours()
        except fast_composer.Unusual:
            self.refused += expected is None
            self.left_to_hydra += expected is not None
            return
        assert repr(got) == repr(expected)
        self.composed += 1


def test_merging_is_omegaconfs():
    decided = Decided()

    @cases(CASES)
    @given(st.lists(TREES, min_size=2, max_size=3))
    def each(trees):
        decided.note(
            lambda: functools.reduce(fast_composer.merged, trees, {}),
            lambda: OmegaConf.to_container(OmegaConf.merge(*trees)),
        )

    each()
    assert decided.composed + decided.left_to_hydra + decided.refused == CASES
    assert decided.composed >= 0.8 * CASES
    assert decided.left_to_hydra <= 0.1 * CASES


def paths(tree, above=()):
    """The path of every section and leaf of a tree."""
    for name, part in tree.items():
        yield (*above, name)
        if isinstance(part, dict):
            yield from paths(part, (*above, name))


@st.composite
def overrides(draw, tree):
    """One override: mostly of what is there, or a new key with a plus; any other one for a fifth of cases."""
    there = list(paths(tree))
    sections = [(), *(path for path in there if isinstance(functools.reduce(dict.get, path, tree), dict))]
    new = [(*section, name) for section in sections for name in "abcd" if (*section, name) not in there]
    kinds = [("", there), ("", there), ("++", there), ("+", new), ("++", new)]
    sign, some = draw(st.sampled_from([kind for kind in kinds if kind[1]]))
    path = draw(st.sampled_from(some))
    value = draw(st.sampled_from(["1", "2.5", "null", "x y", "???", "'1'", "true", "${a}"]))
    if draw(st.integers(0, 4)) == 4:
        sign = draw(st.sampled_from(["", "+", "++"]))
        path = draw(st.lists(NAMES, min_size=1, max_size=3))
        value = draw(st.sampled_from([value, "[1]"]))
    return f"{sign}{'.'.join(path)}={value}"


def test_overriding_is_hydras():
    decided = Decided()

    @cases(CASES)
    @given(TREES, st.data())
    def each(tree, data):
        parsed = OverridesParser.create().parse_overrides([data.draw(overrides(tree))])
        config = OmegaConf.create(tree)
        OmegaConf.set_struct(config, True)

        def by_hydra():
            ConfigLoaderImpl._apply_overrides_to_config(parsed, config)
            return OmegaConf.to_container(config)

        decided.note(lambda: fast_composer.overridden(tree, parsed), by_hydra)

    each()
    assert decided.composed + decided.left_to_hydra + decided.refused == CASES
    assert decided.composed >= 0.8 * CASES
    assert decided.left_to_hydra <= 0.1 * CASES
