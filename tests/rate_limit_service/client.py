"""A client of Envoy's rate limit service by grpcio. It reads commands from standard input, one JSON object a line, and answers
each with one.

{"port": 1, "method": "/envoy...", "raw": "00ff", "gzip": true, "timeout": 1.5, "times": 320, "threads": 32, ...}

The message is "raw", or a RateLimitRequest of "domain", "hits" and "descriptors": [{"entries": [[key, value]], "hits": 2,
"limit": [units, unit]}].
Values may be {"hex": "ff"}. The answer is {"code": "OK", "overall": 1, "statuses": [..], "fields": [..], "request_fields": [..],
"metadata": {..}}, or {"code": .., "detail": ..}; for "health" {"code": .., "status": 1}. With "times" the call is made so often
by so many threads, and the answer is {"admitted": n, "refused": n, "other": n}.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(number, value):
    return varint(number << 3) + varint(value)


def bytes_field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def text_bytes(value):
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()


def request_message(command):
    message = bytes_field(1, command.get("domain", "").encode())
    for descriptor in command.get("descriptors", []):
        encoded = b"".join(
            bytes_field(1, bytes_field(1, key.encode()) + bytes_field(2, text_bytes(value)))
            for key, value in descriptor["entries"]
        )
        if "limit" in descriptor:
            units, unit = descriptor["limit"]
            encoded += bytes_field(2, number_field(1, units) + number_field(2, unit))
        if "hits" in descriptor:
            encoded += bytes_field(3, number_field(1, descriptor["hits"]))
        message += bytes_field(2, encoded)
    if "hits" in command:
        message += number_field(3, command["hits"])
    return message


def fields_of(message):
    position = 0

    def take_varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        key = take_varint()
        if key & 7 == 0:
            yield key >> 3, take_varint()
        elif key & 7 == 2:
            length = take_varint()
            yield key >> 3, message[position : position + length]
            position += length
        else:
            raise ValueError(f"wire type {key & 7}")


def status_of(message):
    status = {"code": 0, "remaining": 0}
    for number, value in fields_of(message):
        if number == 1:
            status["code"] = value
        elif number == 2:
            limit = dict(fields_of(value))
            status["limit"] = [limit.get(1, 0), limit.get(2, 0), limit.get(3, b"").decode()]
        elif number == 3:
            status["remaining"] = value
        elif number == 4:
            status["reset"] = dict(fields_of(value)).get(1, 0)
    return status


def response_of(message):
    answer = {"code": "OK", "overall": 0, "statuses": [], "fields": [], "request_fields": [], "metadata": {}}
    for number, value in fields_of(message):
        if number == 1:
            answer["overall"] = value
        elif number == 2:
            answer["statuses"].append(status_of(value))
        elif number in (3, 4):
            field = dict(fields_of(value))
            names = "fields" if number == 3 else "request_fields"
            answer[names].append([field[1].decode(), field.get(2, b"").decode()])
        elif number == 6:
            for _, entry in fields_of(value):
                entry = dict(fields_of(entry))
                answer["metadata"][entry[1].decode()] = dict(fields_of(entry[2]))[3].decode()
    return answer


def call(channel, command):
    method = channel.unary_unary(command.get("method", RATE_LIMIT))
    if "raw" in command:
        message = bytes.fromhex(command["raw"])
    else:
        message = request_message(command)
    compression = grpc.Compression.Gzip if command.get("gzip") else None
    try:
        response = method(message, timeout=command.get("timeout", 30), compression=compression)
    except grpc.RpcError as error:
        return {"code": error.code().name, "detail": error.details()}
    if command.get("health"):
        return {"code": "OK", "status": dict(fields_of(response)).get(1, 0)}
    return response_of(response)


def main():
    channels = {}
    for line in sys.stdin:
        command = json.loads(line)
        port = command["port"]
        if port not in channels:
            channels[port] = grpc.insecure_channel(f"127.0.0.1:{port}")
        channel = channels[port]
        if "times" in command:
            with ThreadPoolExecutor(command["threads"]) as threads:
                answers = list(threads.map(lambda _: call(channel, command), range(command["times"])))
            count = lambda overall: sum(answer.get("overall") == overall for answer in answers)
            answer = {"admitted": count(1), "refused": count(2), "other": len(answers) - count(1) - count(2)}
        else:
            answer = call(channel, command)
        print(json.dumps(answer), flush=True)


main()
