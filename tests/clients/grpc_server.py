"""grpcio's server, with bytes for messages: grpc_server.py [CERTIFICATE KEY]. Says `listening PORT`."""

import sys
import threading
from concurrent import futures

import grpc

# How far something has come, by its name.
reached = {}
changed = threading.Condition()


def advance(name):
    with changed:
        reached[name] = reached.get(name, 0) + 1
        changed.notify_all()


def until(request, context):
    """Waits for a count, `NAME COUNT`."""
    name, count = request.decode().split()
    with changed:
        if not changed.wait_for(lambda: reached.get(name, 0) >= int(count), 10):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{name} has not come so far")
    return b""


def unary(request, context):
    metadata = dict(context.invocation_metadata())
    context.send_initial_metadata([("x-first", "one"), ("x-bytes-bin", metadata.get("x-bytes-bin", b""))])
    context.set_trailing_metadata([("x-last", "two"), ("x-last-bin", b"\x00\xff")])
    return request


def down(request, context):
    """As many messages as are asked for, each when the last was read: `NAME COUNT`."""
    name, count = request.decode().split()
    for number in range(int(count)):
        yield b"%d" % number
        until(f"{name} {number + 1}".encode(), context)


def up(requests, context):
    return b" ".join(requests)


def both(requests, context):
    yield from requests


def fails(request, context):
    context.set_trailing_metadata([("x-why", "because")])
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no: 100 % größer")


def fails_later(request, context):
    yield b"one"
    context.abort(grpc.StatusCode.DATA_LOSS, "in the middle")


def waits(request, context):
    """Until the client is gone."""
    name = request.decode()
    context.add_callback(lambda: advance(name + "-over"))
    advance(name)
    until(f"{name}-over 1".encode(), context)
    return b""


def remaining(request, context):
    """The seconds that the client has left."""
    return str(context.time_remaining()).encode()


def notes(request, context):
    advance(request.decode())
    return b""


handlers = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Down": grpc.unary_stream_rpc_method_handler(down),
    "Up": grpc.stream_unary_rpc_method_handler(up),
    "Both": grpc.stream_stream_rpc_method_handler(both),
    "Fails": grpc.unary_unary_rpc_method_handler(fails),
    "FailsLater": grpc.unary_stream_rpc_method_handler(fails_later),
    "Waits": grpc.unary_unary_rpc_method_handler(waits),
    "Remaining": grpc.unary_unary_rpc_method_handler(remaining),
    "Until": grpc.unary_unary_rpc_method_handler(until),
    "Advance": grpc.unary_unary_rpc_method_handler(notes),
}
options = [("grpc.max_receive_message_length", 16 << 20)]
server = grpc.server(futures.ThreadPoolExecutor(max_workers=32), options=options)
services = [grpc.method_handlers_generic_handler(name, handlers) for name in ["test.Echo", "few"]]
server.add_generic_rpc_handlers(services)
if len(sys.argv) > 2:
    certificate, key = (open(path, "rb").read() for path in sys.argv[1:3])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
else:
    port = server.add_insecure_port("127.0.0.1:0")
server.start()
print("listening", port, flush=True)
server.wait_for_termination()
