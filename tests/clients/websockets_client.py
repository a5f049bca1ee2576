"""`websockets` through the gateway: websockets_client.py URL [AUTHORITY]"""

import asyncio
import ssl
import sys

import websockets

url = sys.argv[1]
secure = ssl.create_default_context(cafile=sys.argv[2]) if len(sys.argv) > 2 else None
SIZES = [0, 1, 125, 126, 65535, 65536, 1 << 20, (3 << 20) + 1]


def connect(path="/", **options):
    options = {"max_size": 1 << 24, "ssl": secure, "ping_interval": None, **options}
    return websockets.connect(url + path, **options)


async def echo():
    for compression in ["deflate", None]:
        async with connect(compression=compression, subprotocols=["echo"]) as socket:
            assert socket.subprotocol == "echo"
            for size in SIZES:
                for message in ["ä" * (size // 2), bytes(range(256)) * (size // 256) + b"x" * (size % 256)]:
                    await socket.send(message)
                    assert await socket.recv() == message, size


async def pings():
    async with connect() as socket:
        await asyncio.wait_for(await socket.ping(b"here"), 10)
        await socket.send("ping")
        assert await socket.recv() == "pong"


async def fragments():
    async with connect() as socket:
        await socket.send(["a" * 10, "", "b" * 70000])
        assert await socket.recv() == "a" * 10 + "b" * 70000
        await socket.send("pieces")
        assert await socket.recv() == "one two three"


async def closes():
    async with connect() as socket:
        await socket.close(4001, "from the client")
        assert socket.close_code == 4001
    async with connect() as socket:
        await socket.send("close 4002 from the server")
        await socket.wait_closed()
        assert (socket.close_code, socket.close_reason) == (4002, "from the server")


async def many():
    async def one(number):
        async with connect() as socket:
            for turn in range(10):
                await socket.send(f"{number} {turn}")
                assert await socket.recv() == f"{number} {turn}"

    await asyncio.gather(*(one(number) for number in range(100)))


async def is_refused():
    for _ in range(2):
        async with connect("/few/"):
            pass
    try:
        async with connect("/few/"):
            raise AssertionError("admitted")
    except websockets.InvalidStatusCode as error:
        assert error.status_code == 429
        assert 3590 <= int(error.headers["retry-after"]) <= 3600


async def main():
    for case in [echo, pings, fragments, closes, many, is_refused]:
        await asyncio.wait_for(case(), 15)
        print(case.__name__)


asyncio.run(main())
