"""httpx through the gateway: httpx_client.py URL"""

import json
import sys

import httpx
import zstandard

url = sys.argv[1]
results = []
for version in ["HTTP/1.1", "HTTP/2"]:
    http2 = version == "HTTP/2"
    with httpx.Client(http1=not http2, http2=http2, timeout=15, trust_env=False) as client:
        # The last one is what httpx asks for by itself.
        for coding, headers in [
            ("gzip", {"accept-encoding": "gzip"}),
            ("br", {"accept-encoding": "br"}),
            ("zstd", {"accept-encoding": "zstd"}),
            ("br", {}),
        ]:
            answer = client.get(url, headers=headers)
            content = answer.content
            if coding == "zstd":
                # This version of httpx leaves it to its caller.
                content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
            results.append({
                "coding": answer.headers.get("content-encoding"),
                "expected": coding,
                "content": content.decode(),
                "version": answer.http_version,
                "asked": version,
            })
print(json.dumps(results))
