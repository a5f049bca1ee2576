"""What ordinary Starlette applications read of a request: base64 of JSON in the response field `x-read`.

Each name is a dimension, then who reads it; what is not there is left out.
"""

import asyncio
import base64
import json
import os
import socket
import unicodedata

import jwt
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Host, Route, Router

SECRET = os.environ["SECRET"]


def attempt(read):
    """What `read` gives; nothing when the framework refuses."""
    try:
        return read()
    except Exception:
        return None


def account(email):
    if isinstance(email, str):
        return unicodedata.normalize("NFKC", email).strip().casefold()
    return None


def claims_of(token):
    return jwt.decode(token, SECRET, algorithms=["HS256", "HS384", "HS512"], leeway=60, options={"verify_aud": False})


def subject(token):
    claims = claims_of(token)
    return None if claims.get("sub") is None else str(claims["sub"])


def organisation(token):
    claims = claims_of(token)
    return text(claims["org.id"] if "org.id" in claims else claims["org"]["id"])


def text(value):
    if isinstance(value, list) and len(value) == 1:
        return text(value[0])
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def number(value):
    """As an `int` parameter of FastAPI: a whole number, also as text or as a float."""
    if isinstance(value, float) and not value.is_integer():
        return None
    return str(int(value))


def fastapi(header):
    """As FastAPI's HTTPBearer."""
    scheme, _, token = header.partition(" ")
    return token if scheme.lower() == "bearer" else None


async def fields(request, body, type_=None):
    """The form of a copy of the request, under another content type if one is given."""
    scope = dict(request.scope)
    if type_ is not None:
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        scope["headers"].append((b"content-type", type_))

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        form = await Request(scope, receive).form()
        return form.getlist("email")
    except Exception:
        return []


def member(body):
    value = json.loads(body)
    return value.get("email") if isinstance(value, dict) else None


async def reading(request, handler):
    body = await request.body()
    form = await fields(request, body)
    header = request.headers.get("authorization")
    bearer = {}
    if header is not None:
        bearer = {
            "split": attempt(lambda: header.split()[1]),
            "split at one blank": attempt(lambda: header.split(" ")[1]),
            "FastAPI": fastapi(header),
            "replaced": header.replace("Bearer ", ""),
        }
    tokens = dict(bearer, whole=header)
    key = request.headers.get("x-api-key")
    posted = form[-1] if form else None
    return {
        "field": {
            "form": text(posted),
            "form, number": attempt(lambda: number(posted)),
            "first": text(form[0] if form else None),
            "json": attempt(lambda: text(member(body))),
            "json, number": attempt(lambda: number(member(body))),
        },
        "claim": {how: attempt(lambda: organisation(token)) for how, token in tokens.items() if token},
        "email": {
            "form": account(form[-1] if form else None),
            "first": account(form[0] if form else None),
            "json": account(attempt(lambda: member(body))),
            "body or query": account(form[-1] if form else request.query_params.get("email")),
        },
        "bearer": bearer,
        "user": {how: attempt(lambda: subject(token)) for how, token in tokens.items() if token},
        "cookie": {"cookies": request.cookies.get("sid")},
        "query": {"query_params": request.query_params.get("key"), "first": attempt(lambda: request.query_params.getlist("key")[0])},
        "header": {"raw": key, "stripped": key and key.strip()},
        "host": {"url": attempt(lambda: request.url.hostname), "Host": request.scope.get("virtual")},
        "address": {"client": request.client and request.client.host},
        "path": {"routes": handler and f"{request.method} {handler}"},
        "part": {
            "routes": request.path_params.get("id"),
            "number": attempt(lambda: number(request.path_params["id"])),
        },
    }


def endpoint(handler):
    async def respond(request):
        text = json.dumps(await reading(request, handler))
        return Response(headers={"x-read": base64.b64encode(text.encode()).decode()})

    return respond


class Virtual:
    """Marks requests that a `Host` route has taken."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            scope["virtual"] = "a.test"
        await self.app(scope, receive, send)


ALL = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
routes = [
    Route("/login", endpoint("login"), methods=["POST"]),
    Route("/items/{id}", endpoint("item"), methods=["DELETE"]),
    Route("/report", endpoint("report"), methods=["GET"]),
    Route("/{rest:path}", endpoint(None), methods=ALL),
]
app = Starlette(routes=[Host("a.test", Virtual(Router(routes))), *routes])


async def main():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening {listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_level="critical", proxy_headers=True, forwarded_allow_ips="127.0.0.1", timeout_keep_alive=600)
    await uvicorn.Server(config).serve(sockets=[listener])


asyncio.run(main())
