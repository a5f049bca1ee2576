"""Says all that whisper files hold, as JSON lines. Argument: their folder."""

import json
import os
import sys

import whisper

for folder, _, files in os.walk(sys.argv[1]):
    for file in files:
        if file.endswith(".wsp"):
            path = os.path.join(folder, file)
            try:
                (start, _, step), values = whisper.fetch(path, 0)
            except whisper.CorruptWhisperFile:
                # A file that is being made has no header yet.
                continue
            samples = [(start + at * step, v) for at, v in enumerate(values) if v is not None]
            name, *tags = file[: -len(".wsp")].replace("_DOT_", ".").split(";")
            print(json.dumps({"name": name, "labels": dict(tag.split("=", 1) for tag in tags), "samples": samples}))
