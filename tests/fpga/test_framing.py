"""The link shell: whatever bytes arrive, messages are right or refused."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import TransportError
from dovetail.fpga.framing import HEADER_BYTES, Decoder, Message, MessageKind, encode

messages = st.builds(Message, st.sampled_from(MessageKind), st.binary(max_size=64), st.integers(0, 65535),
                     st.integers(0, 2**64 - 1))


def decoded(stream: bytes, pieces: list[int] | None = None) -> list[Message]:
    """Everything a stream holds, read in pieces; raises TransportError where it is damaged."""
    decoder, found = Decoder(), []
    for start, stop in pairwise([0, *sorted(p % (len(stream) + 1) for p in pieces or []), len(stream)]):
        decoder.feed(stream[start:stop])
        while (message := decoder.next()) is not None:
            found.append(message)
    decoder.finish()
    return found


@given(st.lists(messages, max_size=5), st.lists(st.integers(0, 10**6), max_size=8))
def test_messages_survive_whatever_the_pieces_they_come_in(sent: list[Message], pieces: list[int]) -> None:
    stream = b"".join(encode(m, i) for i, m in enumerate(sent))
    assert decoded(stream, pieces) == sent


@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_no_damage_passes_for_a_message(sent: list[Message], data: st.DataObject) -> None:
    """Flipped bits, lost or repeated words, lost, repeated or swapped messages, a cut end."""
    pieces = [encode(m, i) for i, m in enumerate(sent)]
    stream = bytearray(b"".join(pieces))
    place = data.draw(st.integers(0, len(stream) - 1))
    kind = data.draw(st.sampled_from(["flip", "lose", "repeat", "lose message", "repeat message", "cut"]))
    number = data.draw(st.integers(0, len(pieces) - 1))
    word = slice(place // 4 * 4, place // 4 * 4 + 4)
    if kind == "flip":
        stream[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "lose":
        del stream[word]
    elif kind == "repeat":
        stream[word.stop:word.stop] = stream[word]
    elif kind == "lose message":
        stream = bytearray(b"".join(pieces[:number] + pieces[number + 1:]))
    elif kind == "repeat message":
        stream = bytearray(b"".join(pieces[: number + 1] + pieces[number:]))
    else:
        del stream[place:]
    try:
        found = decoded(bytes(stream))
    except TransportError:
        return
    assert found == sent[: len(found)]
    assert kind in ("lose message", "cut", "repeat"), kind
    if kind == "repeat":
        assert bytes(stream) == b"".join(pieces)
    elif kind == "lose message":
        assert number == len(pieces) - 1
    else:
        assert len(stream) == sum(map(len, pieces[: len(found)]))


def test_after_damage_the_next_whole_message_is_found() -> None:
    first, second = (encode(Message(MessageKind.DATA, b"abcd" * 9, 1), i) for i in range(2))
    decoder = Decoder()
    decoder.feed(first[:20] + second)
    with pytest.raises(TransportError, match=r"^link: a message's header was damaged on the way, its checksum differs; check"):
        decoder.next()
    decoder.resynchronise()
    assert decoder.next() == Message(MessageKind.DATA, b"abcd" * 9, 1)


def test_a_lost_message_is_named_by_its_number() -> None:
    decoder = Decoder()
    decoder.feed(encode(Message(MessageKind.READ), 3))
    with pytest.raises(TransportError, match=r"^link: message 3 came where 0 was expected; messages were lost or repeated$"):
        decoder.next()


def test_a_newer_version_is_refused_before_its_payload_is_waited_for() -> None:
    octets = bytearray(encode(Message(MessageKind.DATA, bytes(100)), 0))
    octets[4] = 2
    octets[24:28] = struct.pack("<I", zlib.crc32(octets[:24]))
    decoder = Decoder()
    decoder.feed(bytes(octets[:HEADER_BYTES]))
    with pytest.raises(TransportError, match=r"^link: a message of version 2, kind 1, 100 bytes; version 1 and kinds 1 to 8 are"):
        decoder.next()
