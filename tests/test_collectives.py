"""Every collective gives the sum, the same bits on every rank, in the order it states, for the bytes it states."""

from collections import defaultdict, deque
from fractions import Fraction
from pathlib import Path

import pytest

from amounts import amount
from parbench import RunSpec, Session, UsageError
from parbench.api import PeerCollective, bounds
from parbench.registry import Registry

PLUGIN = Path(__file__).parent / "exchanges.py"
REGISTRY = Registry()
SIZES = (0, 1, 5, 203)
WORLDS = (1, 2, 3, 4, 5, 6, 7, 8)
VARIANTS = (
    "ring",
    "halving_doubling",
    "tree",
    "hierarchical",
    "hierarchical(groups=1)",
    "reduce_scatter_all_gather",
    "parameter_server(chunk=100)",
    "parameter_server(servers=2, chunk=7)",
    "parameter_server(servers=2, placement=contiguous, chunk=100)",
    "broadcast_chain(piece=9)",
)


def test_all_that_are_there_are_tested():
    names = {text.partition("(")[0] for text in VARIANTS}
    assert names | {"native", "ring_socket"} == set(REGISTRY.names("collective"))


def resolved(text):
    return REGISTRY.resolve("collective", text)


def able(text, n):
    return resolved(text).refuses(n) is None


# ---- the rounds, without ranks: messages between lists


class Ranks:
    """All ranks in one place: each does its rounds as far as its messages have come; values are sums written out."""

    def __init__(self, collective, elements, n):
        self.rounds = [list(collective.rounds(elements, rank, n)) for rank in range(n)]
        self.values = [[f"x{rank}"] * elements for rank in range(n)]
        self.wires = defaultdict(deque)
        self.sent = [0] * n
        self.at = [0] * n
        self.begun = [False] * n

    def run(self):
        while any(at < len(rounds) for at, rounds in zip(self.at, self.rounds, strict=True)):
            assert any([self._step(rank) for rank in range(len(self.rounds))]), "every rank waits for another"
        assert not any(self.wires.values()), "a message was sent that nobody takes"
        return self.values

    def _step(self, rank):
        if self.at[rank] == len(self.rounds[rank]):
            return False
        one, mine = self.rounds[rank][self.at[rank]], self.values[rank]
        if not self.begun[rank]:
            self.begun[rank] = True
            for message in one.sends:
                assert message.peer != rank
                self.wires[rank, message.peer].append(mine[message.start : message.stop])
                self.sent[rank] += message.stop - message.start
        needed = defaultdict(int)
        for message in (*one.adds, *one.puts):
            needed[message.peer] += 1
        if any(len(self.wires[peer, rank]) < count for peer, count in needed.items()):
            return False
        for message in one.adds:
            arrived = self.wires[message.peer, rank].popleft()
            assert len(arrived) == message.stop - message.start
            for k, other in enumerate(arrived, message.start):
                mine[k] = tree(mine[k], other)
        for message in one.puts:
            mine[message.start : message.stop] = self.wires[message.peer, rank].popleft()
        self.at[rank] += 1
        self.begun[rank] = False
        return True


def tree(one, other):
    """Write a sum down; the order of two numbers does not matter to their sum."""
    return "(" + "+".join(sorted((one, other))) + ")"


def ranks_in(text):
    return sorted(text.replace("(", " ").replace(")", " ").replace("+", " ").split())


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("text", VARIANTS)
def test_every_rank_gets_every_rank_once_in_one_order(text, n):
    if not able(text, n):
        pytest.skip("refused")
    for elements in (0, 1, 5, n, 3 * n, 61):
        values = Ranks(resolved(text), elements, n).run()
        assert all(mine == values[0] for mine in values), "ranks add in different orders"
        assert all(ranks_in(one) == [f"x{rank}" for rank in range(n)] for one in values[0])


@pytest.mark.parametrize("n", WORLDS)
@pytest.mark.parametrize("text", VARIANTS)
def test_bytes_are_those_of_the_rounds(text, n):
    if not able(text, n):
        pytest.skip("refused")
    for elements in (*SIZES, 8 * n):
        ranks = Ranks(resolved(text), elements, n)
        ranks.run()
        stated = [resolved(text).sent(elements, 4, rank, n) for rank in range(n)]
        assert [one.get("send", 0) for one in stated] == [4 * sent for sent in ranks.sent]


def chained(names):
    found = names[0]
    for name in names[1:]:
        found = tree(found, name)
    return found


def around(first, n):
    return [f"x{(first + k) % n}" for k in range(n)]


def test_the_orders_of_additions_that_are_stated():
    n = 5
    parts = [slice(a, b) for a, b in zip(bounds(11, n), bounds(11, n)[1:], strict=False)]
    ring = Ranks(resolved("ring"), 11, n).run()[0]
    split = Ranks(resolved("reduce_scatter_all_gather"), 11, n).run()[0]
    for k, part in enumerate(parts):
        assert set(ring[part]) == {chained(around(k, n))}
        assert set(split[part]) == {chained([f"x{k}", *(f"x{r}" for r in range(n) if r != k)])}
    assert set(Ranks(resolved("broadcast_chain(piece=2)"), 5, 4).run()[0]) == {chained(["x3", "x2", "x1", "x0"])}
    assert set(Ranks(resolved("tree"), 3, 8).run()[0]) == {
        tree(tree(tree("x0", "x1"), tree("x2", "x3")), tree(tree("x4", "x5"), tree("x6", "x7")))
    }
    assert set(Ranks(resolved("halving_doubling"), 8, 4).run()[0]) == {tree(tree("x0", "x2"), tree("x1", "x3"))}
    folded = Ranks(resolved("halving_doubling"), 8, 5).run()[0]
    assert set(folded) == {tree(tree(tree("x0", "x1"), "x3"), tree("x2", "x4"))}
    assert set(Ranks(resolved("parameter_server(chunk=2)"), 4, 3).run()[0]) == {chained(["x0", "x1", "x2"])}
    served = Ranks(resolved("parameter_server(servers=2, chunk=2)"), 6, 3).run()[0]
    assert served == [chained(["x0", "x1", "x2"])] * 2 + [chained(["x1", "x0", "x2"])] * 2 + served[:2]
    leaders = Ranks(resolved("hierarchical"), 4, 4).run()[0]
    assert set(leaders) == {tree(tree("x0", "x1"), tree("x2", "x3"))}


@pytest.mark.parametrize("n", [2, 4, 8])
def test_formulas_where_ranks_divide_the_tensor(n):
    elements, size = 64 * n, Fraction(4 * 64 * n)
    share = Fraction(2 * (n - 1), n) * size
    for text in ("ring", "halving_doubling", "reduce_scatter_all_gather"):
        for rank in range(n):
            assert resolved(text).sent(elements, 4, rank, n) == {"send": share}
    assert resolved("native").sent(elements, 4, 0, n) == {"all_reduce": share}
    served = [resolved("parameter_server").sent(elements, 4, rank, n)["send"] for rank in range(n)]
    assert served == [(n - 1) * size, *[size] * (n - 1)]
    spread = resolved(f"parameter_server(servers={n}, chunk=64)")
    assert {spread.sent(elements, 4, rank, n)["send"] for rank in range(n)} == {share}
    chain = [resolved("broadcast_chain").sent(elements, 4, rank, n)["send"] for rank in range(n)]
    assert chain == [size * (2 if 0 < rank < n - 1 else 1) for rank in range(n)]
    up_and_down = [resolved("tree").sent(elements, 4, rank, n)["send"] for rank in range(n)]
    assert sum(up_and_down) == 2 * (n - 1) * size
    assert up_and_down[0] == (n.bit_length() - 1) * size


def test_formulas_of_what_is_left_over():
    # 5 ranks: 4 halve and double, rank 1 folds into rank 0. 8 elements of 4 bytes.
    sent = [resolved("halving_doubling").sent(8, 4, rank, 5)["send"] for rank in range(5)]
    assert sent == [48 + 32, 32, 48, 48, 48]
    # 2 groups of 4: leaders 0 and 4 hand out to 3 others, and send both halves to each other.
    sent = [resolved("hierarchical").sent(8, 4, rank, 8)["send"] for rank in range(8)]
    assert sent == [3 * 32 + 32, 32, 32, 32, 3 * 32 + 32, 32, 32, 32]
    # A ring of 3 over 5 elements has parts of 1, 2 and 2: rank 0 sends parts 0 and 2, then 1 and 0.
    assert resolved("ring").sent(5, 4, 0, 3) == {"send": 4 * (1 + 2 + 2 + 1)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hierarchical(groups=0)", "groups must be at least 1"),
        ("parameter_server(servers=0)", "servers must be at least 1"),
        ("parameter_server(chunk=0)", "chunk must be at least 1"),
        ("parameter_server(placement=nowhere)", "placement must be one of"),
        ("broadcast_chain(piece=0)", "piece must be at least 1"),
        ("rign", "did you mean 'ring'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(text, words):
    with pytest.raises(UsageError, match=words):
        resolved(text)


def test_too_few_ranks_are_refused_with_the_most_that_go():
    assert "the most servers are 3" in resolved("parameter_server(servers=4)").refuses(3)
    assert "the most groups are 2" in resolved("hierarchical(groups=3)").refuses(2)
    assert isinstance(resolved("ring"), PeerCollective)


# ---- in ranks


@pytest.fixture(scope="module")
def session():
    with Session(world_size=8, plugins=[PLUGIN]) as ranks:
        yield ranks


def wrong(session, texts, n, elements, half=False):
    """Add up in every way, in one step of one variant, and return what is wrong and how many sums there were."""
    spec = RunSpec(
        workload="exchanges",
        strategy=f"exchanges(collectives=[{', '.join(texts)}], elements={list(elements)}, half={half})",
        size="smoke",
        world_size=n,
    )
    variant = session.add(spec)
    ranks = variant.inspect()
    variant.close()
    assert len(ranks) == n
    return "; ".join(str(one.notes["wrong"]) for one in ranks if one.notes["wrong"]), ranks[0].notes["cases"]


NAMES = sorted({text.partition("(")[0] for text in ("native", "ring_socket", *VARIANTS)})


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_sums_in_ranks(session, n):
    texts = ("native", "ring_socket", *VARIANTS)
    assert wrong(session, texts, n, SIZES) == ("", len(texts) * len(SIZES))


@pytest.mark.parametrize("n", [2, 3])
def test_sums_of_many_elements_in_ranks(session, n):
    assert wrong(session, NAMES, n, [1_000_003]) == ("", len(NAMES))


def test_sums_of_half_precision(session):
    assert wrong(session, NAMES, 3, [77], half=True) == ("", len(NAMES))


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("n", amount([2, 3, 4, 8], in_ci=[3, 8]))
def test_sums_of_every_collective_size_and_world(session, n):
    assert wrong(session, ("native", "ring_socket", *VARIANTS), n, (2, n, 3 * n, 1009))[0] == ""
    assert wrong(session, NAMES, n, [1_000_003, 2_000_000])[0] == ""
