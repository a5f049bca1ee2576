"""An application of FastAPI: uploads of files, and a stream of events that each wait for their turn."""

import asyncio
import hashlib

import uvicorn
from fastapi import FastAPI, UploadFile
from fastapi.responses import StreamingResponse

app = FastAPI()
turns = asyncio.Queue()


@app.post("/files")
async def upload(file: UploadFile):
    digest = hashlib.sha256()
    size = 0
    while chunk := await file.read(1 << 20):
        digest.update(chunk)
        size += len(chunk)
    return {"name": file.filename, "size": size, "sha256": digest.hexdigest()}


@app.get("/events")
async def events():
    async def stream():
        for number in range(5):
            await turns.get()
            yield f"data: event {number}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.post("/turn")
async def turn():
    await turns.put(None)
    return {}


uvicorn.run(app, host="127.0.0.1", port=0)
