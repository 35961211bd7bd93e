"""API keys and the rate limit per client."""

import pytest
from fastapi import Request

from app.errors import ApiError
from app.server.rate_limit import MAX_WRONG_KEYS, RateLimiter
from app.settings import Settings, key_digest


class FakeClock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> RateLimiter:
    """A limit of 60 characters per minute, so one per second."""
    digests = (key_digest("one"), key_digest("two"))
    return RateLimiter(Settings(models=(), backends=(), rate=60, key_digests=digests), clock)


def request(host: str = "1.2.3.4", key: str | None = None) -> Request:
    headers = [(b"x-api-key", key.encode())] if key else []
    return Request({"type": "http", "client": (host, 1), "headers": headers})


def retry_after(limiter: RateLimiter, characters: int, **client: str) -> float | None:
    """Charge a client; return None if the characters are accepted."""
    try:
        limiter.charge(limiter.client(request(**client)), characters)
    except ApiError as error:
        return error.retry_after if error.status == 429 else -1
    return None


def test_bucket_refills_over_time(limiter: RateLimiter, clock: FakeClock) -> None:
    assert retry_after(limiter, 50) is None
    assert retry_after(limiter, 15) == pytest.approx(5)
    clock.now += 4
    assert retry_after(limiter, 15) == pytest.approx(1)
    clock.now += 1
    assert retry_after(limiter, 15) is None
    assert retry_after(limiter, 1) == pytest.approx(1)


def test_bucket_holds_at_most_one_minute(limiter: RateLimiter, clock: FakeClock) -> None:
    assert retry_after(limiter, 60) is None
    clock.now += 3600
    assert retry_after(limiter, 60) is None
    assert retry_after(limiter, 1) == pytest.approx(1)


def test_text_longer_than_limit_needs_full_bucket(limiter: RateLimiter, clock: FakeClock) -> None:
    """Its client pays for it in the minutes after it."""
    assert retry_after(limiter, 1000) is None
    assert retry_after(limiter, 1000) == pytest.approx(1000)
    clock.now += 999
    assert retry_after(limiter, 1000) == pytest.approx(1)
    clock.now += 1
    assert retry_after(limiter, 1000) is None


def test_refund_of_a_long_text_ends_its_debt(limiter: RateLimiter) -> None:
    assert retry_after(limiter, 1000) is None
    limiter.refund("1.2.3.4", 1000)
    assert retry_after(limiter, 60) is None


def test_refused_requests_do_not_reduce_the_debt_of_a_long_text(limiter: RateLimiter) -> None:
    assert retry_after(limiter, 1000) is None
    limiter.charge_refused("1.2.3.4", 120_000)
    assert retry_after(limiter, 1) == pytest.approx(941)


def test_empty_text_counts_as_one_character(limiter: RateLimiter) -> None:
    assert retry_after(limiter, 60) is None
    assert retry_after(limiter, 0) == pytest.approx(1)


def test_client_is_identified_by_key_or_address(limiter: RateLimiter) -> None:
    assert retry_after(limiter, 60) is None
    assert retry_after(limiter, 60, host="4.3.2.1") is None
    assert retry_after(limiter, 60, key="one") is None
    assert retry_after(limiter, 60, key="two") is None
    assert retry_after(limiter, 1, host="9.9.9.9", key="two") is not None
    assert retry_after(limiter, 1, key="no such key") is not None  # counts for its address


def test_ipv6_network_is_one_client(limiter: RateLimiter) -> None:
    assert retry_after(limiter, 60, host="2001:db8::1") is None
    assert retry_after(limiter, 1, host="2001:db8::ffff:2") is not None
    assert retry_after(limiter, 60, host="2001:db8:0:1::1") is None
    assert retry_after(limiter, 60, host="::ffff:1.2.3.4") is None
    assert retry_after(limiter, 1, host="::ffff:1.2.3.5") is None


def test_refused_request_can_leave_the_client_in_debt(
    limiter: RateLimiter, clock: FakeClock
) -> None:
    limiter.check_debt("1.2.3.4")
    for _ in range(9):
        limiter.charge_refused("1.2.3.4", 120_000)
    with pytest.raises(ApiError) as caught:
        limiter.check_debt("1.2.3.4")
    assert (caught.value.status, caught.value.retry_after) == (429, pytest.approx(60))
    limiter.check_debt("4.3.2.1")
    clock.now += 60
    limiter.check_debt("1.2.3.4")
    assert retry_after(limiter, 30) == pytest.approx(30)
    clock.now += 60
    assert retry_after(limiter, 60) is None


def status_of_key(limiter: RateLimiter, key: str, host: str = "1.2.3.4") -> int:
    try:
        limiter.check_key(request(host, key))
    except ApiError as error:
        return error.status
    return 200


def test_wrong_keys_of_an_address_are_limited(limiter: RateLimiter, clock: FakeClock) -> None:
    for number in range(MAX_WRONG_KEYS):
        assert status_of_key(limiter, f"guess {number}") == 401
    assert status_of_key(limiter, "another guess") == 429
    assert status_of_key(limiter, "one") == 429  # otherwise the guesses would go on
    assert status_of_key(limiter, "one", host="4.3.2.1") == 200
    clock.now += 61
    assert status_of_key(limiter, "one") == 200


def test_repeated_wrong_key_locks_nobody_out(limiter: RateLimiter) -> None:
    for _ in range(3 * MAX_WRONG_KEYS):
        assert status_of_key(limiter, "an old key") == 401
    assert status_of_key(limiter, "one") == 200


def test_missing_key_is_not_a_guess(limiter: RateLimiter) -> None:
    for _ in range(3 * MAX_WRONG_KEYS):
        assert status_of_key(limiter, "") == 401
    assert status_of_key(limiter, "one") == 200
