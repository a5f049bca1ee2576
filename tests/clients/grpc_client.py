"""grpcio through the gateway: grpc_client.py ADDRESS AROUND-ADDRESS AUTHORITY TLS BEHIND-TLS"""

import asyncio
import sys
import threading
import uuid

import grpc

address, around_address, authority, tls, behind_tls = sys.argv[1:6]
options = [("grpc.max_receive_message_length", 16 << 20), ("grpc.enable_retries", 0)]
with open(authority, "rb") as file:
    credentials = grpc.ssl_channel_credentials(file.read())


def channel(to, secure, module=grpc):
    if secure == "tls":
        return module.secure_channel(to, credentials, options=options)
    return module.insecure_channel(to, options=options)


around = channel(around_address, behind_tls)
LIMIT = 10


def agree(method, text):
    around.unary_unary("/test.Echo/" + method)(text.encode(), timeout=LIMIT)


def refusal(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("no error")


def simple(through):
    call = through.unary_unary("/test.Echo/Unary")
    for size in [0, 1, 1000, 100_000, 3 << 20, 8 << 20]:
        message = b"x" * size
        assert call(message, timeout=LIMIT) == message, size
    answer, done = call.with_call(b"a", timeout=LIMIT, metadata=[("x-bytes-bin", b"\x00\xff\x80")])
    assert answer == b"a" and done.code() == grpc.StatusCode.OK
    first, last = dict(done.initial_metadata()), dict(done.trailing_metadata())
    assert (first["x-first"], first["x-bytes-bin"]) == ("one", b"\x00\xff\x80"), first
    assert (last["x-last"], last["x-last-bin"]) == ("two", b"\x00\xff"), last
    packed = call(b"y" * 100_000, timeout=LIMIT, compression=grpc.Compression.Gzip)
    assert packed == b"y" * 100_000


def streams(through):
    """Each message of the server's when the last was read, and each of both sides in turn."""
    name = uuid.uuid4().hex
    seen = []
    for message in through.unary_stream("/test.Echo/Down")(f"{name} 30".encode(), timeout=LIMIT):
        seen.append(message)
        agree("Advance", name)
    assert seen == [b"%d" % number for number in range(30)]
    parts = [b"%d" % number for number in range(500)]
    assert through.stream_unary("/test.Echo/Up")(iter(parts), timeout=LIMIT) == b" ".join(parts)
    heard = threading.Semaphore(1)

    def turns():
        for number in range(50):
            assert heard.acquire(timeout=LIMIT)
            yield b"%d" % number * 1000

    answers = through.stream_stream("/test.Echo/Both")(turns(), timeout=LIMIT)
    for number, answer in enumerate(answers):
        assert answer == b"%d" % number * 1000
        heard.release()
    assert number == 49
    large = [b"z" * (1 << 20)] * 8
    assert list(through.stream_stream("/test.Echo/Both")(iter(large), timeout=LIMIT)) == large


def errors(through):
    error = refusal(lambda: through.unary_unary("/test.Echo/Fails")(b"", timeout=LIMIT))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "no: 100 % größer", error.details()
    assert dict(error.trailing_metadata())["x-why"] == "because"
    messages = through.unary_stream("/test.Echo/FailsLater")(b"", timeout=LIMIT)
    assert next(messages) == b"one"
    error = refusal(lambda: next(messages))
    assert (error.code(), error.details()) == (grpc.StatusCode.DATA_LOSS, "in the middle")
    error = refusal(lambda: through.unary_unary("/test.Echo/Unknown")(b"", timeout=LIMIT))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def deadlines(through):
    """The server hears of a deadline, and that it has passed."""
    left = float(through.unary_unary("/test.Echo/Remaining")(b"", timeout=LIMIT))
    assert LIMIT - 5 < left < LIMIT + 1, left
    name = uuid.uuid4().hex
    waits = through.unary_unary("/test.Echo/Waits")
    error = refusal(lambda: waits(name.encode(), timeout=0.5))
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    agree("Until", f"{name}-over 1")


def cancels(through):
    name = uuid.uuid4().hex
    call = through.unary_unary("/test.Echo/Waits").future(name.encode(), timeout=LIMIT)
    agree("Until", f"{name} 1")
    call.cancel()
    assert call.code() == grpc.StatusCode.CANCELLED
    agree("Until", f"{name}-over 1")
    call = through.stream_stream("/test.Echo/Both")(iter([b"a"]), timeout=LIMIT)
    assert next(call) == b"a"
    call.cancel()
    assert call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.OK)


def many(through):
    """More at once than a connection may have streams."""
    call = through.unary_unary("/test.Echo/Unary")
    calls = [call.future(b"%d" % number, timeout=LIMIT) for number in range(300)]
    assert [one.result() for one in calls] == [b"%d" % number for number in range(300)]


def is_refused(through):
    call = through.unary_unary("/few/Unary")
    for _ in range(2):
        assert call(b"a", timeout=LIMIT) == b"a"
    refused = [
        lambda: call(b"a" * 100_000, timeout=LIMIT),
        lambda: list(through.unary_stream("/few/Down")(b"a 1", timeout=LIMIT)),
        lambda: through.stream_unary("/few/Up")(iter([b"a"] * 1000), timeout=LIMIT),
        lambda: list(through.stream_stream("/few/Both")(iter([b"a"]), timeout=LIMIT)),
    ]
    for ask in refused:
        error = refusal(ask)
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
        assert error.details().startswith("The request exceeds the limit few; try again in "), error
        told = dict(error.initial_metadata() or ()) | dict(error.trailing_metadata())
        assert 3500 < int(told["retry-after"]) <= 3600, told
    assert through.unary_unary("/test.Echo/Unary")(b"b", timeout=LIMIT) == b"b"


async def in_asyncio():
    """grpcio's other interface."""
    async with channel(address, tls, grpc.aio) as through:
        assert await through.unary_unary("/test.Echo/Unary")(b"a", timeout=LIMIT) == b"a"
        both = through.stream_stream("/test.Echo/Both")(timeout=LIMIT)
        for number in range(20):
            await both.write(b"%d" % number)
            assert await both.read() == b"%d" % number
        await both.done_writing()
        assert await both.read() == grpc.aio.EOF
        try:
            await through.unary_unary("/few/Unary")(b"a", timeout=LIMIT)
            raise AssertionError("admitted")
        except grpc.aio.AioRpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


with channel(address, tls) as through:
    for case in [simple, streams, errors, deadlines, cancels, many, is_refused]:
        case(through)
        print(case.__name__)
asyncio.run(in_asyncio())
print("in_asyncio")
around.close()
