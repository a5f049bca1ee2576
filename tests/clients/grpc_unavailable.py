"""A call that cannot be served: grpc_unavailable.py ADDRESS; says the name of its status."""

import sys

import grpc

with grpc.insecure_channel(sys.argv[1], options=[("grpc.enable_retries", 0)]) as through:
    try:
        through.unary_unary("/test.Echo/Unary")(b"", timeout=10)
    except grpc.RpcError as error:
        print(error.code().name)
