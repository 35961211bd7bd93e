"""How much a client may send."""

import pytest
from fastapi import Request

from app.errors import ApiError
from app.server.rate_limit import Clients
from app.settings import Settings, digest


class Clock:
    """Shows what it is set to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clients(clock: Clock) -> Clients:
    """60 characters a minute, one a second."""
    keys = (digest("one"), digest("two"))
    return Clients(Settings(models=(), backends=(), rate=60, keys=keys), clock)


def request(host: str = "1.2.3.4", key: str | None = None) -> Request:
    headers = [(b"x-api-key", key.encode())] if key else []
    return Request({"type": "http", "client": (host, 1), "headers": headers})


def seconds_to_wait(clients: Clients, characters: int, **who: str) -> float | None:
    """None where they were taken."""
    try:
        clients.charge(request(**who), characters)
    except ApiError as problem:
        return problem.retry_after if problem.status == 429 else -1
    return None


def test_what_was_sent_comes_back_with_time(clients: Clients, clock: Clock) -> None:
    assert seconds_to_wait(clients, 50) is None
    assert seconds_to_wait(clients, 15) == pytest.approx(5)
    clock.now += 4
    assert seconds_to_wait(clients, 15) == pytest.approx(1)
    clock.now += 1
    assert seconds_to_wait(clients, 15) is None
    assert seconds_to_wait(clients, 1) == pytest.approx(1)


def test_more_than_a_minute_brings_is_never_saved_up(clients: Clients, clock: Clock) -> None:
    assert seconds_to_wait(clients, 60) is None
    clock.now += 3600
    assert seconds_to_wait(clients, 60) is None
    assert seconds_to_wait(clients, 1) == pytest.approx(1)


def test_a_text_longer_than_the_allowance_is_taken_from_a_full_bucket(
    clients: Clients, clock: Clock
) -> None:
    assert seconds_to_wait(clients, 1000) is None
    assert seconds_to_wait(clients, 1000) == pytest.approx(60)
    clock.now += 59
    assert seconds_to_wait(clients, 1000) == pytest.approx(1)
    clock.now += 1
    assert seconds_to_wait(clients, 1000) is None


def test_an_empty_text_counts_as_a_character(clients: Clients) -> None:
    assert seconds_to_wait(clients, 60) is None
    assert seconds_to_wait(clients, 0) == pytest.approx(1)


def test_clients_are_told_apart_by_their_keys_else_by_their_addresses(clients: Clients) -> None:
    assert seconds_to_wait(clients, 60) is None
    assert seconds_to_wait(clients, 60, host="4.3.2.1") is None
    assert seconds_to_wait(clients, 60, key="one") is None
    assert seconds_to_wait(clients, 60, key="two") is None
    assert seconds_to_wait(clients, 1, host="9.9.9.9", key="two") is not None
    assert seconds_to_wait(clients, 1, key="no such key") is not None  # its address


def test_the_addresses_of_an_ipv6_network_are_one_client(clients: Clients) -> None:
    assert seconds_to_wait(clients, 60, host="2001:db8::1") is None
    assert seconds_to_wait(clients, 1, host="2001:db8::ffff:2") is not None
    assert seconds_to_wait(clients, 60, host="2001:db8:0:1::1") is None
    assert seconds_to_wait(clients, 60, host="::ffff:1.2.3.4") is None
    assert seconds_to_wait(clients, 1, host="::ffff:1.2.3.5") is None
