"""What a check says of a wrong port, for tests of causes."""

from graphmode.compare import Case, check


def causes(reference, port, inputs, **fields):
    """`(id, says)` of each cause of each divergence, on the case's own inputs alone."""
    case = Case(name="c", summary="s", reference=reference, model=port, inputs=inputs, adversarial=(), **fields)
    report = check(case, compiled=False, hasty=True)
    assert not report.passed
    return [(cause.id, cause.says) for each in report.divergences for cause in each.causes]
