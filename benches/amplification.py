#!/usr/bin/python3
"""What little on the wire makes the gateway hold and do. Fails when it is more than ten times.

Memory: resident bytes of ten connections with a hundred requests each, beyond what as many requests hold that say
nothing, for each byte that they sent. CPU: the kernel's schedstat for a message, beside a plain one of its size; the
least of some rounds, which others on the machine do not change much.

    benches/amplification.py [PROGRAM]
"""

import glob
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

TIMES = 10
CONNECTIONS, STREAMS = 10, 100
ROUNDS = 8
# What any head may hold and the heads of any connection (`FREE_HEAD_BYTES` and `BASE_BUDGET` in
# src/serve/http2/head_memory.rs), and what two processes that do the same differ by.
FIXED = CONNECTIONS * (STREAMS * 1024 + 64 * 1024)
HEADERS, RST, SETTINGS, PING, CONTINUATION, END, ENDED = 1, 3, 4, 6, 9, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"

GATEWAY = """\
version: 1
workers: 1
listen: 127.0.0.1:{port}
admin: off
access_log: off
upstreams: {{ up: ["http://127.0.0.1:{upstream}"] }}
identity: {{ email: {{ body: email }}, ip: {{ trusted_proxies: [127.0.0.1] }} }}
store: {{ memory: 16MiB }}
record: off
"""
POLICIES = {
    "wait": "match: POST /wait/**\nupstream: up\nlimits: { few: { key: email, rate: 1000000/m } }\n",
    "refused": "match: /refused/**\nupstream: up\nlimits: { none: { key: ip, rate: 1/d } }\n",
    "any": "match: /**\nupstream: up\n",
}


def serve(upstream):
    """Keeps requests waiting, but those for a path that says how large a head it wants."""

    def one(stream):
        try:
            answer(stream)
        except OSError:
            stream.close()

    def answer(stream):
        head = b""
        while piece := stream.recv(1 << 16):
            head = (head + piece)[-(1 << 17) :]
            if b"\r\n\r\n" in head and b"/head/" in head:
                size = int(head.split(b"/head/")[1].split(b" ")[0])
                stream.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx: " + b"v" * size + b"\r\n\r\n")
                head = b""

    while True:
        stream, _ = upstream.accept()
        threading.Thread(target=one, args=(stream,), daemon=True).start()


def listen():
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    return listener, listener.getsockname()[1]


class Gateway:
    def __init__(self, program, folder, upstream):
        free, self.port = listen()
        free.close()
        os.makedirs(f"{folder}/policies", exist_ok=True)
        with open(f"{folder}/tollgate.yaml", "w") as file:
            file.write(GATEWAY.format(port=self.port, upstream=upstream))
        for name, text in POLICIES.items():
            with open(f"{folder}/policies/{name}.yaml", "w") as file:
                file.write(text)
        command = [program, "run", "--config", f"{folder}/tollgate.yaml"]
        self.log = open(f"{folder}/log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        for _ in range(200):
            try:
                return self.connect().close()
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit(f"the gateway does not start:\n{open(f'{folder}/log').read()}")

    def connect(self):
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def resident(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    def nanos(self):
        total = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            with open(path) as file:
                total += int(file.read().split()[0])
        return total

    def settled(self):
        """Resident bytes once they change no more."""
        before = -1
        for _ in range(20):
            now = self.resident()
            if now == before:
                return now
            before = now
            time.sleep(0.1)
        return now

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


# What is sent.


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits, first=0):
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out, value = out + [value % 128 | 128], value // 128
    return bytes(out + [value])


def text(said):
    return number(len(said), 7) + said


def field(name, value, first=0):
    return bytes([first]) + text(name) + text(value)


def head(path, method=b"POST"):
    pseudo = [(b":method", method), (b":scheme", b"http"), (b":authority", b"t"), (b":path", path)]
    return b"".join(field(*one) for one in pseudo)


def begin(stream, block, ended=False):
    """A request in as many frames as it takes."""
    kind, flags, out = HEADERS, ENDED if ended else 0, b""
    while True:
        piece, block = block[:16384], block[16384:]
        out += frame(kind, flags | (0 if block else END), stream, piece)
        kind, flags = CONTINUATION, 0
        if not block:
            return out


LONG = b"v" * 3900
# Each: what the first stream says beyond the others, and what each of them says.
BOMBS = {
    "a value again": (field(b"x", LONG, 0x40), lambda n: b"\xbe" * 15),
    "a name again": (
        field(LONG, b"", 0x40),
        lambda n: b"\x7e" + text(b"%05d" % n) + b"\xbe" * 14,
    ),
    "short fields": (b"", lambda n: b"\x90" * 95),
    "crumbs": (field(b"cookie", b"c" * 3900, 0x40), lambda n: b"\xbe" * 15),
}


def bomb(path, kind):
    first, each = BOMBS.get(kind, (b"", lambda n: b""))

    def say(n):
        more = first if n == 0 else each(n)
        return begin(2 * n + 1, head(path) + more)

    return b"".join(say(n) for n in range(STREAMS))


def trailers():
    def say(n):
        more = field(b"x", LONG, 0x40) if n == 0 else b"\xbe" * 15
        end = frame(HEADERS, END | ENDED, 2 * n + 1, more)
        return begin(2 * n + 1, head(b"/any")) + frame(0, 0, 2 * n + 1, b"a") + end

    return b"".join(say(n) for n in range(STREAMS))


def left():
    """Each large head is said twice, then its first stream is reset."""

    def say(n):
        if n == 0:
            return begin(1, head(b"/any") + field(LONG, b"", 0x40))
        if n % 2:
            return begin(2 * n + 1, head(b"/any") + b"\x7e" + text(b"%05d" % n) + b"\xbe" * 14)
        return begin(2 * n + 1, head(b"/any") + b"\xbe" * 15) + frame(RST, 0, 2 * n - 1, b"\0\0\0\x08")

    return b"".join(say(n) for n in range(STREAMS))


def heads(size):
    return b"".join(begin(2 * n + 1, head(b"/head/%d" % size, b"GET"), True) for n in range(STREAMS))


def held(gateway, message):
    """Resident bytes that connections add which send this and read nothing."""
    before, streams = gateway.settled(), []
    for _ in range(CONNECTIONS):
        stream = gateway.connect()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.sendall(PREFACE + message)
        streams.append(stream)
    time.sleep(0.7)
    return gateway.settled() - before


def usually_held(start, message):
    """The median of three gateways: what the system keeps resident of one varies by some MiB."""
    each = []
    for _ in range(3):
        gateway = start()
        each.append(held(gateway, message))
        gateway.end()
    return statistics.median(each)


def memory(start, failed):
    forms = [("wait", f"{kind}, a route that waits", bomb(b"/wait/a", kind)) for kind in BOMBS]
    forms += [("any", f"{kind}, any route", bomb(b"/any", kind)) for kind in BOMBS]
    forms += [("any", "trailers", trailers()), ("any", "names whose first streams are reset", left())]
    forms += [("head", f"heads of responses, {size} bytes", heads(size)) for size in (4_000, 50_000)]
    plain = {
        "wait": bomb(b"/wait/a", None),
        "any": bomb(b"/any", None),
        "head": heads(0),
    }
    beside = {kind: usually_held(start, message) for kind, message in plain.items()}
    for kind, name, message in forms:
        more = usually_held(start, message) - beside[kind]
        sent = CONNECTIONS * len(message)
        times = (more - FIXED) / sent
        print(f"memory, {name}: {sent} bytes sent, {more} held, {max(times, 0):.1f} times", flush=True)
        failed += [name] if times > TIMES else []


def request(fields, target=b"/refused/a", body=b"", method=b"POST"):
    fields = b"".join(b"%s: %s\r\n" % one for one in fields)
    return b"%s %s HTTP/1.1\r\nhost: t\r\n%s\r\n%s" % (method, target, fields, body)


def blocks(more, learn=b""):
    """A head that goes before, and one with these fields."""
    return PREFACE + begin(1, head(b"/refused/a") + learn, True) + begin(3, head(b"/refused/a") + more, True)


SIZE = 60_000
# A path that goes on to the server and is answered.
GO = b"/head/0"


def until(size, piece):
    return piece * (size // len(piece))


def lengthy(body, fields=(), target=b"/wait/head/0"):
    return request([*fields, (b"content-length", b"%d" % len(body))], target, body)


FORM = [(b"content-type", b"application/x-www-form-urlencoded")]
JSON = [(b"content-type", b"application/json")]
# Plain messages, a short and a long one of each kind: what is between them grows with the size.
PLAIN = {
    "h2": (blocks(b""), blocks(until(SIZE, field(b"a", b"v" * 600)))),
    "h1": (request([], GO), request([(b"x-%02d" % n, b"v" * 700) for n in range(84)], GO)),
    "target": (request([]), request([], b"/refused/" + b"a" * 16_000)),
    "path": (request([]), request([], b"/refused/" + b"a" * 1_900)),
    "body": (lengthy(b"email=a%40b.c", FORM), lengthy(b"email=a%40b.c&x=" + b"v" * SIZE, FORM)),
    "content": (lengthy(b"v", [], GO), lengthy(b"v" * SIZE, [], GO)),
}
# Each with the kind of plain message that it is set beside.
ONE = [(b"%c" % (97 + n % 26) + b"%c" % (97 + n // 26), b"1") for n in range(80)]
WORK = [
    ("h2", "long names", blocks(until(SIZE, b"\x0f\x2f\x00"), field(b"x" * 3900, b"v", 0x40))),
    ("h2", "long names, learnt", blocks(until(SIZE, b"\x7e\x00"), field(b"x" * 3900, b"v", 0x40))),
    ("h2", "long names, malformed", blocks(until(SIZE, b"\x0f\x2f\x00"), field(b"x" * 3900, b"\1", 0x40))),
    ("h2", "references", blocks(until(SIZE, b"\x90"))),
    ("h2", "Huffman's code", blocks(until(SIZE, b"\0\1a" + number(600, 7, 0x80) + b"\0" * 600))),
    ("h2", "crumbs", blocks(until(SIZE, field(b"cookie", b"a")))),
    ("h2", "sizes of the table", PREFACE + begin(1, until(SIZE, b"\x20") + head(b"/refused/a"), True)),
    ("h2", "windows", blocks(b"") + until(SIZE, frame(8, 0, 0, b"\0\0\0\1"))),
    ("h2", "settings", blocks(b"") + until(13_000, frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 9)))),
    ("h2", "pings", blocks(b"") + until(15_000, frame(PING, 0, 0, b"anything"))),
    ("h2", "DATA frames of one byte", PREFACE + begin(1, head(b"/any/head/0")) + until(SIZE, frame(0, 0, 1, b"a")) + frame(0, ENDED, 1, b"a")),
    ("h1", "Connection, letters", request(ONE + [(b"connection", until(SIZE, b"a,"))], GO)),
    ("h1", "Connection, 32 options", request(ONE + [(b"connection", until(64, b"a,")[:-1]), (b"x", b"v" * SIZE)], GO)),
    ("h1", "X-Forwarded-For", request([(b"x-forwarded-for", until(SIZE, b"127.0.0.1,") + b"1.2.3.4")], GO)),
    ("h1", "Forwarded", request([(b"forwarded", until(SIZE, b"for=127.0.0.1,") + b"for=1.2.3.4")], GO)),
    ("h1", "Accept", request([(b"accept", until(SIZE, b"a/b;q=0,") + b"text/html")], GO)),
    ("h1", "cookies", request([(b"cookie", until(SIZE, b"a=b;") + b"c=d")], GO)),
    ("target", "dots", request([], b"/refused/" + until(16_000, b"a/../") + b"a")),
    ("target", "escapes", request([], b"/refused/" + until(16_000, b"%61"))),
    ("target", "escaped slashes", request([], b"/refused/" + until(16_000, b"%2f"))),
    ("target", "parameters", request([], b"/refused/a?" + until(16_000, b"a&"))),
    ("path", "all readings at once", request([], b"/refused/" + until(1_900, b"a;b%2f..//%61/"))),
    ("path", "paths in the query", request([], b"/refused/index.php?" + b"&".join([b"s=" + until(230, b"a;b%2f..//%61/")] * 8))),
    ("body", "fields of a form", lengthy(until(SIZE, b"a=b&") + b"email=a%40b.c", FORM)),
    ("body", "nested names", lengthy(until(SIZE, b"a[b]") + b"=1&email=a%40b.c", FORM)),
    ("body", "members of JSON", lengthy(b'{"email":"a@b.c"' + until(SIZE, b',"a":1') + b"}", JSON)),
    ("body", "nested JSON", lengthy(b'{"email":"a@b.c","x":' + until(SIZE, b"["), JSON)),
    ("content", "chunks of one byte", request([(b"transfer-encoding", b"chunked")], GO, until(SIZE, b"1\r\na\r\n") + b"0\r\n\r\n")),
]


def spent(gateway, message):
    """CPU time of some connections that send this."""
    least = None
    for _ in range(ROUNDS):
        before = gateway.nanos()
        for _ in range(10):
            stream = gateway.connect()
            try:
                stream.sendall(message)
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(1 << 16):
                    pass
            except OSError:
                pass
            stream.close()
        after = gateway.nanos() - before
        least = after if least is None else min(least, after)
    return least / 10


def work(start, failed):
    gateway = start()
    spent(gateway, PLAIN["h1"][1])
    plain = {}
    for kind, messages in PLAIN.items():
        plain[kind] = [(len(message), spent(gateway, message)) for message in messages]
    for kind, name, message in WORK:
        cost = spent(gateway, message)
        (_, least), (long, most) = plain[kind]
        times = cost / (least + (most - least) * min(len(message) / long, 1))
        print(f"CPU, {name}: {len(message)} bytes, {cost / 1000:.0f} us, {times:.2f} times", flush=True)
        failed += [name] if times > TIMES else []
    gateway.end()


def main():
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    program = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else f"{target}/production/tollgate")
    upstream, port = listen()
    threading.Thread(target=serve, args=(upstream,), daemon=True).start()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        start = lambda: Gateway(program, folder, port)
        work(start, failed)
        memory(start, failed)
    if failed:
        raise SystemExit(f"more than {TIMES} times: {', '.join(failed)}")


main()
