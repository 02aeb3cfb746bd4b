from p2pnode.traffic import HOUR_S, SAMPLE_S, Traffic


def test_without_a_sample_nothing_is_claimed() -> None:
    assert Traffic().per_hour(10, 1_000) == 0


def test_a_steady_stream_gives_its_rate() -> None:
    traffic = Traffic()
    traffic.note(0, 0)
    assert traffic.per_hour(1_800, 500) == 1_000


def test_only_the_last_hour_counts() -> None:
    traffic = Traffic()
    for minute in range(200):
        traffic.note(minute * SAMPLE_S, min(minute, 10) * 1_000_000)
    now = 199 * SAMPLE_S
    assert traffic.per_hour(now, 10_000_000) == 0
    assert traffic.per_hour(now, 10_000_000 + HOUR_S) == HOUR_S
