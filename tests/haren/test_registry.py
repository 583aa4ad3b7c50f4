"""Policies by name: what is registered is made, what is unknown or does not fit is refused by name."""

import pytest

import haren.registry as registry
from haren import Policy, PolicyError, make, policies, register


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone when it ends."""
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))


class Entry:
    """An entry point, as `importlib.metadata` gives it."""

    def __init__(self, name: str, loaded) -> None:
        self.name, self.loaded, self.loads = name, loaded, 0

    def load(self):
        self.loads += 1
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.fixture
def install(monkeypatch):
    """Let packages that offer these policies be installed."""

    def offer(*entries: Entry) -> None:
        offered = {"haren.policies": entries}
        monkeypatch.setattr(registry, "entry_points", lambda *, group: offered[group])
        registry._entry_points.cache_clear()

    yield offer
    registry._entry_points.cache_clear()


def weighted(weight=1.0, *, label="weighted"):
    return Policy(label, g=lambda op, F: weight * op)


# -- register and make ----------------------------------------------------------------------------


def test_the_policies_of_the_papers_are_there():
    names = {"chain", "fcfs", "hr", "longest-queue", "multi-class", "os", "random", "rr"}
    assert set(policies()) >= names
    assert policies() == sorted(policies())


@pytest.mark.parametrize("name", ["chain", "fcfs", "hr", "longest-queue", "os", "random", "rr"])
def test_a_policy_bears_the_name_it_is_made_by(name):
    assert make(name).name == name


def test_a_factory_is_registered_and_made_with_its_parameters():
    assert register("mine", weighted) is weighted
    assert "mine" in policies()
    assert make("mine").g(3, None) == 3.0
    assert make("mine", weight=2.0, label="heavy").g(3, None) == 6.0
    assert make("mine", label="heavy").name == "heavy"


def test_a_parameter_may_be_called_name():
    register("mine", lambda name: Policy(name))
    assert make("mine", name="theirs").name == "theirs"


def test_register_is_a_decorator():
    @register("mine")
    def mine():
        return Policy("decorated")

    assert make("mine").name == "decorated"
    assert mine().name == "decorated"


def test_a_policy_itself_may_be_registered():
    policy = Policy("mine")
    assert register("mine", policy) is policy
    assert make("mine") is policy
    with pytest.raises(PolicyError, match=r"'mine': .*'weight'; it takes no parameters"):
        make("mine", weight=1)


def test_registering_again_replaces_a_policy():
    register("mine", Policy("old"))
    register("mine", Policy("new"))
    assert make("mine").name == "new"


def test_what_is_no_policy_is_not_registered():
    with pytest.raises(PolicyError, match="'mine': register a Policy or a function that makes one, not 3"):
        register("mine", 3)
    assert "mine" not in policies()


def test_a_policy_passes_through_make():
    policy = Policy("mine")
    assert make(policy) is policy
    with pytest.raises(PolicyError, match="policy 'mine' is made already and takes no weight, label"):
        make(policy, weight=1, label=2)


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(PolicyError, match="there is no policy 'fcsf'; there are: chain, fcfs, hr"):
        make("fcsf")


def test_unknown_parameters_are_refused_with_those_there_are():
    register("mine", weighted)
    with pytest.raises(PolicyError, match=r"'mine': .*'wieght'; it takes weight=1.0, label=") as caught:
        make("mine", wieght=1)
    assert caught.value.policy == "mine"


def test_missing_parameters_are_refused():
    register("mine", lambda weight: Policy("mine"))
    with pytest.raises(PolicyError, match="'mine': missing a required argument: 'weight'; it takes weight"):
        make("mine")


def test_a_type_error_within_a_factory_is_not_taken_for_a_wrong_parameter():
    def broken():
        return len(3)

    register("mine", broken)
    with pytest.raises(TypeError, match="has no len"):
        make("mine")


def test_a_factory_that_makes_something_else_is_refused():
    register("mine", lambda: "fcfs")
    with pytest.raises(PolicyError, match="'mine': its factory made 'fcfs', not a Policy") as caught:
        make("mine")
    assert caught.value.policy == "mine"


# -- entry points ---------------------------------------------------------------------------------


def test_a_package_offers_a_factory(install):
    entry = Entry("theirs", weighted)
    install(entry)
    assert "theirs" in policies()
    assert entry.loads == 0
    assert make("theirs", weight=2.0).g(3, None) == 6.0


def test_a_package_offers_a_policy(install):
    policy = Policy("theirs")
    install(Entry("theirs", policy))
    assert make("theirs") is policy


def test_packages_are_asked_once(install):
    entry = Entry("theirs", Policy("theirs"))
    install(entry)
    make("theirs")
    make("theirs")
    assert entry.loads == 1


def test_a_package_does_not_replace_what_is_registered(install):
    install(Entry("fcfs", Policy("theirs")))
    assert make("fcfs").name == "fcfs"


def test_a_broken_package_hurts_only_its_users(install):
    install(Entry("broken", ImportError("no such module")), Entry("theirs", Policy("theirs")))
    assert make("theirs").name == "theirs"
    assert "broken" in policies()
    with pytest.raises(ImportError, match="no such module"):
        make("broken")


def test_what_a_package_offers_must_make_a_policy(install):
    install(Entry("theirs", lambda: None))
    with pytest.raises(PolicyError, match="'theirs': its factory made None"):
        make("theirs")


@pytest.mark.parametrize("offered", [weighted, Policy("theirs")], ids=["factory", "policy"])
def test_unknown_parameters_of_a_package_are_refused_by_name(install, offered):
    install(Entry("theirs", offered))
    with pytest.raises(PolicyError, match=r"'theirs': .*'wieght'"):
        make("theirs", wieght=1)


# -- what multi-class is made of ------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        "os",
        Policy("mine", state=(1.0,)),
        Policy("mine", eligible=lambda op, F, now: True),
        Policy("mine", quantum=lambda op, F, now: 1),
        Policy("mine", g=lambda op, F, now: now),
        Policy("mine", g=lambda op, F, threads: threads),
        Policy("mine", g=lambda op, F, state: 0.0),
    ],
    ids=["dispatch", "state", "eligible", "quantum", "now", "threads", "state in g"],
)
def test_multi_class_refuses_what_is_more_than_a_ranking(policy):
    name = policy if isinstance(policy, str) else policy.name
    with pytest.raises(PolicyError, match=f"multi-class: high='{name}' is more than a ranking"):
        make("multi-class", high=policy, low="hr")


def test_multi_class_needs_classes():
    with pytest.raises(PolicyError, match="multi-class needs classes, the most urgent first"):
        make("multi-class")


def test_multi_class_refuses_unknown_policies():
    with pytest.raises(PolicyError, match="there is no policy 'fcsf'"):
        make("multi-class", high="fcsf", low="hr")


def test_multi_class_refuses_different_rules_of_fan_out():
    with pytest.raises(PolicyError, match="different fan-out rules"):
        make("multi-class", high=make("hr", fanout="max"), low="hr")
    assert make("multi-class", high=make("hr", fanout="max")).fanout == "max"


def test_multi_class_refuses_a_policy_that_fails_before_anything_is_measured():
    broken = Policy("broken", g=lambda op, F: 1 / F.pending[op], features=["pending"])
    with pytest.raises(PolicyError, match=r"'broken': g raises ZeroDivisionError .* nothing was measured"):
        make("multi-class", high=broken, low="hr")
