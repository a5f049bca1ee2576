"""A collector of OTLP/HTTP for tests: decodes with Google's library, and keeps every point in a file, a line each.

Arguments: port, file. The messages are described here by hand, after opentelemetry-proto's metrics/v1/metrics.proto.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TYPES = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": TYPES.TYPE_STRING,
    "double": TYPES.TYPE_DOUBLE,
    "fixed64": TYPES.TYPE_FIXED64,
    "sfixed64": TYPES.TYPE_SFIXED64,
    "bool": TYPES.TYPE_BOOL,
    "int32": TYPES.TYPE_INT32,
}
MESSAGES = {
    "AnyValue": [(1, "string_value", "string", False)],
    "KeyValue": [(1, "key", "string", False), (2, "value", "AnyValue", False)],
    "Resource": [(1, "attributes", "KeyValue", True)],
    "Scope": [(1, "name", "string", False), (2, "version", "string", False)],
    "Point": [
        (7, "attributes", "KeyValue", True),
        (2, "start", "fixed64", False),
        (3, "time", "fixed64", False),
        (4, "as_double", "double", False),
        (6, "as_int", "sfixed64", False),
    ],
    "Gauge": [(1, "points", "Point", True)],
    "Sum": [
        (1, "points", "Point", True),
        (2, "temporality", "int32", False),
        (3, "monotonic", "bool", False),
    ],
    "Metric": [(1, "name", "string", False), (5, "gauge", "Gauge", False), (7, "sum", "Sum", False)],
    "ScopeMetrics": [(1, "scope", "Scope", False), (2, "metrics", "Metric", True)],
    "ResourceMetrics": [(1, "resource", "Resource", False), (2, "scopes", "ScopeMetrics", True)],
    "Request": [(1, "resources", "ResourceMetrics", True)],
}


def request_type():
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            label = TYPES.LABEL_REPEATED if repeated else TYPES.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in SCALARS:
                added.type = SCALARS[kind]
            else:
                added.type, added.type_name = TYPES.TYPE_MESSAGE, ".otlp." + kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("otlp.Request"))


def labels(attributes):
    return {pair.key: pair.value.string_value for pair in attributes}


def points(request):
    """What a collector would understand; anything that it would not is an error."""
    for resource in request.resources:
        assert labels(resource.resource.attributes)["service.name"] == "tollgate"
        for scope in resource.scopes:
            for metric in scope.metrics:
                assert metric.HasField("sum") != metric.HasField("gauge")
                if metric.HasField("sum"):
                    assert metric.sum.temporality == 2 and metric.sum.monotonic
                data = metric.sum if metric.HasField("sum") else metric.gauge
                for point in data.points:
                    assert point.HasField("as_int") != point.HasField("as_double")
                    whole = point.HasField("as_int")
                    yield {
                        "name": metric.name,
                        "labels": labels(point.attributes),
                        "counter": metric.HasField("sum"),
                        "start": point.start,
                        "time": point.time,
                        "value": point.as_int if whole else point.as_double,
                    }


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/metrics" and self.headers["content-type"] == "application/x-protobuf"
        request = REQUEST()
        request.ParseFromString(body)
        lines = "".join(json.dumps(point) + "\n" for point in points(request))
        with open(sys.argv[2], "a") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


REQUEST = request_type()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
