"""Each board is read once, whatever ranks share it."""

from parbench.powerplan import Place, readers


def read(*places):
    return {rank: [one.board for one in mine] for rank, mine in readers(places).items()}


def test_eight_ranks_of_one_host_have_each_board_read_once_by_the_first_of_them():
    places = [Place(host="a", board=f"{k % 4}") for k in range(8)]
    assert read(*places) == {0: ["0", "1", "2", "3"]}


def test_each_host_has_a_reader():
    places = [Place(host=host, board=board) for host in "ab" for board in "01"]
    assert read(*places) == {0: ["0", "1"], 2: ["0", "1"]}


def test_ranks_on_the_processors_of_a_host_have_the_host_read_once():
    assert read(*[Place(host="a")] * 4) == {0: [None]}


def test_a_board_of_which_one_rank_has_a_part_is_a_part():
    (one,) = readers([Place(host="a", board="0"), Place(host="a", board="0", part=True)])[0]
    assert one.part
