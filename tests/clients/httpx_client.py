"""httpx through the gateway: httpx_client.py URL DIRECT-URL VERSION SERVER-VERSION [AUTHORITY]"""

import asyncio
import sys
import uuid

import httpx

url, direct, version, behind = sys.argv[1:5]
authority = sys.argv[5] if len(sys.argv) > 5 else True
settings = {
    "base_url": url,
    "verify": authority,
    "timeout": 10,
    "http1": version == "1.1",
    "http2": version == "2",
}
around = httpx.Client(base_url=direct, timeout=10)


def http_version():
    return "HTTP/" + version


def simple(client):
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]:
        answer = client.request(method, "/version/")
        assert answer.status_code == 200, answer
        assert answer.http_version == http_version(), answer.http_version
        seen = answer.json()
        assert (seen["version"], seen["method"]) == (behind, method), seen
    assert client.head("/version/").content == b""
    large = bytes(range(256)) * 2048
    assert client.post("/echo/", content=large).content == large
    form = client.post("/echo/", data={"a": "b c"}, files={"f": ("name", b"\r\n--\r\n" * 100)})
    assert b'filename="name"' in form.content
    assert client.get("/version/", params={"q": "ä &"}, headers={"x-many": "v" * 4000}).is_success


def streams_up(client):
    """Each piece is at the server before the next is sent."""
    name = uuid.uuid4().hex

    def body():
        for number in range(20):
            yield b"x" * 1000
            around.get(f"/until/{name}/{1000 * (number + 1)}").raise_for_status()

    assert client.post(f"/upload/{name}", content=body()).text == "20000"


def streams_down(client):
    """The server sends each event when the last was read."""
    name = uuid.uuid4().hex
    with client.stream("GET", f"/events/{name}/50", headers={"accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        ids = []
        for line in answer.iter_lines():
            if line.startswith("id:"):
                ids.append(line.strip())
                around.post(f"/advance/{name}").raise_for_status()
    assert ids == [f"id: {number}" for number in range(50)]


def leaves(client):
    """A client that reads no further is gone at the server too. Over HTTP/2 httpx tells nobody."""
    if version == "2":
        return
    name = uuid.uuid4().hex
    with client.stream("GET", f"/endless/{name}") as answer:
        assert next(answer.iter_raw()).startswith(b"begun")
    around.get(f"/until/{name}/1").raise_for_status()
    assert client.get("/version/").is_success


def connection(answer):
    if version == "2":
        # Only a connection's first request has a small number.
        return answer.extensions["stream_id"] > 1
    return answer.extensions["network_stream"].get_extra_info("socket").getsockname()


def is_refused(client):
    """Two are admitted; the connection of the third stays."""
    codes = []
    for _ in range(3):
        answer = client.get("/few/", headers={"accept": "application/json"})
        codes.append(answer.status_code)
    assert codes == [200, 200, 429], codes
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["violated-policies"] == ["few"], answer.text
    assert 3590 <= int(answer.headers["retry-after"]) <= 3600
    try:
        answer.raise_for_status()
        raise AssertionError("no error")
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 429
    again = client.get("/version/")
    assert again.status_code == 200
    assert connection(again) == connection(answer)
    # Over HTTP/2 httpx hears nothing before it has sent all, also when the stream is reset.
    # So it is to fit into the window.
    large = 200_000 if version == "2" else 2_000_000
    refused = client.post("/few/", content=b"x" * large)
    assert refused.status_code == 429


async def many():
    async with httpx.AsyncClient(**settings) as client:
        answers = await asyncio.gather(*(client.get("/version/") for _ in range(100)))
        assert all(answer.status_code == 200 for answer in answers)


with httpx.Client(**settings) as client:
    for case in [simple, streams_up, streams_down, leaves, is_refused]:
        case(client)
        print(case.__name__)
asyncio.run(many())
print("many")
