"""A client of HTTP/3 by aioquic. It reads commands from standard input, one JSON object a line, and answers each with one.

{"do": "connect", "port": 1, "name": "test"}            opens a connection: {"ok": true, "protocol": "h3", "names": [..]}
{"do": "fetch", "requests": [{"method": .., "path": .., "fields": [[n, v]], "body": bytes, "trailers": [[n, v]]}]}
    sends all requests before it reads: [{"status": .., "fields": {..}, "sha": .., "bytes": .., "trailers": {..}}]
{"do": "open", ...}                 sends one request, with "ends" to its end, and answers at once: {"stream": 0}
{"do": "send", "stream": 0, "bytes": 5, "end": true}    sends more of its body
{"do": "wait", "stream": 0}         waits for its response, as fetch does
{"do": "reset", "stream": 0, "is_whole": true}          takes a request back, which was sent to its end or not
{"do": "raw", "hex": "00", "end": false, "count": 1}    opens streams with these bytes: {"streams": [..]}
{"do": "flood", "count": 10000}     opens streams and resets them at once, as many as the server allows
{"do": "closed"}                    waits for the end of the connection: {"code": 256}
{"do": "goaway"}                    waits for GOAWAY: {"id": 4}
{"do": "begin", "port": 1, "count": 64}     begins handshakes, and sends nothing more of them once the server has responded

The answer to "connect" has the number of times that the server asked for a proof of the address, as "retries".
"""

import asyncio
import contextlib
import hashlib
import json
import socket
import ssl
import sys

from aioquic.buffer import Buffer, BufferReadError
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

MAX_WAIT = 60
# The first stream that the server opens in one direction.
CONTROL_STREAM = 3
GOAWAY = 0x7


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.control = b""
        self.responses = {}
        self.protocol = None
        self.end = None
        self.changed = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, events.ProtocolNegotiated):
            self.protocol = event.alpn_protocol
        if isinstance(event, events.ConnectionTerminated):
            self.end = {"code": event.error_code, "reason": event.reason_phrase}
        if isinstance(event, events.StreamDataReceived) and event.stream_id == CONTROL_STREAM:
            self.control += event.data
        if isinstance(event, events.StreamReset):
            self.response(event.stream_id)["reset"] = event.error_code
        if isinstance(event, events.StopSendingReceived):
            self.response(event.stream_id)["stopped"] = event.error_code
        for received in self.http.handle_event(event):
            response = self.response(received.stream_id)
            if isinstance(received, HeadersReceived):
                fields = {name.decode(): value.decode() for name, value in received.headers}
                if ":status" not in fields:
                    response["trailers"] = fields
                elif fields[":status"].startswith("1"):
                    response["interim"].append(fields[":status"])
                else:
                    response["status"] = int(fields.pop(":status"))
                    response["fields"] = fields
            if isinstance(received, DataReceived):
                response["hash"].update(received.data)
                response["bytes"] += len(received.data)
                if len(response["text"]) < 512:
                    response["text"] += received.data[:512].decode("latin-1")
            if received.stream_ended:
                response["whole"] = True
        self.changed.set()

    def response(self, stream):
        empty = {"bytes": 0, "text": "", "interim": [], "trailers": {}, "hash": hashlib.sha256()}
        return self.responses.setdefault(stream, empty)

    async def until(self, happened):
        async with asyncio.timeout(MAX_WAIT):
            while not happened():
                # Not every change is an event: the server may have allowed further streams.
                self.changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.changed.wait(), 0.02)

    async def whole(self, stream):
        response = self.response(stream)
        await self.until(lambda: "whole" in response or "reset" in response or self.end is not None)
        response["sha"] = response["hash"].hexdigest()
        shown = {name: value for name, value in response.items() if name != "hash"}
        return {**shown, "end": self.end}

    def go_away(self):
        """The identifier in the GOAWAY of the server; None before that."""
        buffer = Buffer(data=self.control)
        with contextlib.suppress(BufferReadError):
            buffer.pull_uint_var()
            while not buffer.eof():
                frame_type, length = buffer.pull_uint_var(), buffer.pull_uint_var()
                payload = buffer.pull_bytes(length)
                if frame_type == GOAWAY:
                    return Buffer(data=payload).pull_uint_var()
        return None

    def begin(self, request, ends):
        stream = self._quic.get_next_available_stream_id()
        fields = [(":method", request.get("method", "GET")), (":scheme", "https")]
        fields += [(":authority", request.get("host", "test")), (":path", request.get("path", "/"))]
        fields = request.get("head", fields) + request.get("fields", [])
        body = request.get("body", 0)
        trailers = request.get("trailers", [])
        fields = [(name.encode(), value.encode("latin-1")) for name, value in fields]
        self.http.send_headers(stream, fields, ends and not body and not trailers)
        if body:
            self.http.send_data(stream, text(body), ends and not trailers)
        if trailers:
            trailers = [(name.encode(), value.encode()) for name, value in trailers]
            self.http.send_headers(stream, trailers, ends)
        return stream

    async def do(self, command):
        match command["do"]:
            case "fetch":
                streams = [self.begin(request, True) for request in command["requests"]]
                self.transmit()
                return [await self.whole(stream) for stream in streams]
            case "open":
                stream = self.begin(command, command.get("ends", False))
                self.transmit()
                return {"stream": stream}
            case "send":
                self.http.send_data(command["stream"], text(command.get("bytes", 0)), command["end"])
                self.transmit()
                return {}
            case "wait":
                return await self.whole(command["stream"])
            case "reset":
                if not command.get("is_whole"):
                    self._quic.reset_stream(command["stream"], 0x10C)
                self._quic.stop_stream(command["stream"], 0x10C)
                self.transmit()
                return {}
            case "raw":
                streams = []
                for _ in range(command.get("count", 1)):
                    stream = self._quic.get_next_available_stream_id(command.get("one_way", False))
                    data = bytes.fromhex(command["hex"]) + b"\0" * command.get("zeros", 0)
                    self._quic.send_stream_data(stream, data, command.get("end", False))
                    streams.append(stream)
                self.transmit()
                return {"streams": streams}
            case "flood":
                for _ in range(command["count"]):
                    # The server allows a further stream only when it has seen the end of others.
                    opened = lambda: self._quic.get_next_available_stream_id() // 4
                    if opened() >= self._quic._remote_max_streams_bidi:
                        self.transmit()
                        await self.until(lambda: self.end or opened() < self._quic._remote_max_streams_bidi)
                    if self.end:
                        break
                    stream = self.begin(command, False)
                    self._quic.reset_stream(stream, 0x10C)
                    self._quic.stop_stream(stream, 0x10C)
                self.transmit()
                return {"opened": opened()}
            case "closed":
                await self.until(lambda: self.end is not None)
                return self.end
            case "goaway":
                await self.until(lambda: self.go_away() is not None)
                return {"id": self.go_away()}


def text(length):
    return (b"0123456789abcdef" * (length // 16 + 1))[:length]


def begin_handshake(port):
    """Sends the first packet of a handshake, and waits for the response."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="test")
    quic = QuicConnection(configuration=configuration)
    quic.connect(("127.0.0.1", port), now=0)
    connected = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    connected.connect(("127.0.0.1", port))
    connected.settimeout(MAX_WAIT)
    for datagram, _ in quic.datagrams_to_send(now=0):
        connected.send(datagram)
    connected.recv(2048)
    return connected


async def commands():
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def main():
    clients, opened = {}, []
    async for command in commands():
        try:
            if command["do"] == "connect":
                alpn = command.get("alpn", ["h3"])
                configuration = QuicConfiguration(is_client=True, alpn_protocols=alpn)
                configuration.verify_mode = ssl.CERT_NONE
                configuration.server_name = command.get("name")
                if "cert" in command:
                    configuration.load_cert_chain(command["cert"], command["key"])
                context = connect(
                    "127.0.0.1", command["port"], configuration=configuration, create_protocol=Client
                )
                async with asyncio.timeout(MAX_WAIT):
                    client = await context.__aenter__()
                opened.append(context)
                clients[command.get("as", "")] = client
                certificate = client._quic.tls._peer_certificate
                answer = {
                    "protocol": client.protocol,
                    "serial": str(certificate.serial_number),
                    "retries": client._quic._retry_count,
                }
            elif command["do"] == "begin":
                opened += [begin_handshake(command["port"]) for _ in range(command["count"])]
                answer = {}
            else:
                answer = await clients[command.get("as", "")].do(command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


asyncio.run(main())
