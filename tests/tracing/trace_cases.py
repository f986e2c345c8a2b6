"""Traces written by hand: a rank's spans and collectives, times in microseconds."""

from parbench.tracing.spans import Collective, RankTrace, Span

US = 1000


def span(kind, start, end, name=None, thread="main", device=False, **args):
    names = {"operator": "aten::mm"}
    return Span(
        name=name or names.get(kind, kind),
        kind=kind,
        start_ns=round(start * US),
        end_ns=round(end * US),
        thread=thread,
        device=device,
        args=args,
    )


def collective(op, issued, start, end, *, number=0, step=0, axis="world", members=(0, 1), size=None, peer=None):
    def ns(time):
        return None if time is None else round(time * US)

    return Collective(
        op=op,
        number=number,
        step=step,
        group="0",
        members=members,
        axis=axis,
        peer=peer,
        logical_bytes=size,
        issued_ns=ns(issued),
        start_ns=ns(start),
        end_ns=ns(end),
    )


def trace(rank=0, spans=(), collectives=(), world_size=2, host="one", **more):
    return RankTrace(
        rank=rank,
        world_size=world_size,
        backend="gloo",
        host=host,
        spans=tuple(sorted(spans, key=lambda one: one.start_ns)),
        collectives=tuple(collectives),
        **more,
    )
