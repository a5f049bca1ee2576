"""The echo server of `websockets`. Says `listening PORT`, and how each connection closed."""

import asyncio

import websockets


async def serve(socket, path="/"):
    try:
        async for message in socket:
            await answer(socket, message)
    finally:
        print("closed", socket.close_code, socket.close_reason, flush=True)


async def answer(socket, message):
    if isinstance(message, str) and message.startswith("close "):
        _, code, reason = message.split(" ", 2)
        await socket.close(int(code), reason)
    elif message == "ping":
        await asyncio.wait_for(await socket.ping(b"are you there"), 10)
        await socket.send("pong")
    elif message == "pieces":
        await socket.send(iter(["one ", "two ", "three"]))
    else:
        await socket.send(message)


async def main():
    options = {"max_size": 1 << 24, "subprotocols": ["echo"], "ping_interval": None}
    async with websockets.serve(serve, "127.0.0.1", 0, **options) as server:
        print("listening", server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()


asyncio.run(main())
