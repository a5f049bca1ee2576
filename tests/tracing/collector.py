"""A collector of traces for tests: decodes with OpenTelemetry's own package, and keeps each span in a file, a line each.

Arguments: port, file.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


def attributes(pairs):
    values = {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
    assert len(values) == len(pairs), "an attribute stands there twice"
    return values


def spans(request):
    """What a collector would understand; anything that it would not is an error."""
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            assert scope.scope.name == "tollgate" and scope.scope.version
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8
                assert len(span.parent_span_id) in (0, 8)
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
                yield {
                    "resource": attributes(resource.resource.attributes),
                    "trace": span.trace_id.hex(),
                    "span": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "state": span.trace_state,
                    "flags": span.flags,
                    "name": span.name,
                    "kind": Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                    "start": span.start_time_unix_nano,
                    "end": span.end_time_unix_nano,
                    "status": Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
                    "attributes": attributes(span.attributes),
                }


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        token = self.headers["authorization"]
        lines = "".join(json.dumps({**span, "token": token}) + "\n" for span in spans(request))
        with open(sys.argv[2], "a") as file:
            file.write(lines)
        body = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


open(sys.argv[2], "w").close()
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
os.close(1)
server.serve_forever()
