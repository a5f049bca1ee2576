"""An application behind hypercorn, which speaks HTTP/1.1 and HTTP/2. Says `listening PORT`, or with the
path of a Unix socket `listening 0`.

Who asks and who serves agree out of band, by requests that go around the gateway: a server that
sends nothing before the last event was read shows that nothing holds events back.
"""

import asyncio
import json
import socket
import sys
from collections import Counter

from hypercorn.asyncio import serve
from hypercorn.config import Config

# How far something has come, by its name; and who waits for that.
reached = Counter()
changed = asyncio.Condition()


async def advance(name, by=1):
    async with changed:
        reached[name] += by
        changed.notify_all()


async def until(name, count):
    async with changed:
        await asyncio.wait_for(changed.wait_for(lambda: reached[name] >= count), 10)


async def pieces(receive):
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def answer(send, body=b"fine", more=False, kind=b"text/plain"):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    _, what, *rest = scope["path"].split("/")
    if what == "version":
        # hypercorn drops an HTTP/2 connection on whose stream a body comes after the answer.
        async for _ in pieces(receive):
            pass
        seen = {"version": scope["http_version"], "method": scope["method"], "headers": len(scope["headers"])}
        await answer(send, json.dumps(seen).encode(), kind=b"application/json")
    elif what == "echo":
        await answer(send, b"", more=True)
        async for piece in pieces(receive):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})
    elif what == "upload":
        async for piece in pieces(receive):
            await advance(rest[0], len(piece))
        await answer(send, str(reached[rest[0]]).encode())
    elif what == "events":
        await answer(send, b"", more=True, kind=b"text/event-stream")
        for number in range(int(rest[1])):
            event = f"id: {number}\ndata: tick\n\n".encode()
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await until(rest[0], number + 1)
        await send({"type": "http.response.body"})
    elif what == "endless":
        await receive()
        await answer(send, b"begun", more=True)
        left = asyncio.ensure_future(receive())
        # It sees that a client has left when it writes.
        while not left.done():
            await send({"type": "http.response.body", "body": b"more" * 1000, "more_body": True})
            await asyncio.sleep(0)
        await advance(rest[0])
    elif what == "advance":
        await advance(rest[0])
        await answer(send)
    elif what == "until":
        await until(rest[0], int(rest[1]))
        await answer(send)
    else:
        await answer(send)


if len(sys.argv) > 1:
    listener = socket.create_server(sys.argv[1], family=socket.AF_UNIX)
    port = 0
else:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
config = Config()
config.bind = [f"fd://{listener.fileno()}"]
config.loglevel = "WARNING"
config.keep_alive_timeout = 60
print("listening", port, flush=True)
asyncio.run(serve(app, config))
