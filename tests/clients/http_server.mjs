// Node's server: http_server.mjs 1|2 for its version of HTTP. Says `listening PORT`.
//
// As in asgi_server.py, who asks and who serves agree out of band, around the gateway.

import http from "node:http";
import http2 from "node:http2";
import { EventEmitter, once } from "node:events";

const reached = new Map();
const changed = new EventEmitter().setMaxListeners(0);

function advance(name, by = 1) {
  reached.set(name, (reached.get(name) ?? 0) + by);
  changed.emit("change");
}

async function until(name, count) {
  const signal = AbortSignal.timeout(10_000);
  while ((reached.get(name) ?? 0) < count) await once(changed, "change", { signal });
}

async function serve(request, response) {
  const [, what, name, count] = request.url.split("/");
  if (what === "version") {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ version: request.httpVersion, method: request.method }));
  } else if (what === "echo") {
    request.pipe(response);
  } else if (what === "upload") {
    for await (const piece of request) advance(name, piece.length);
    response.end(String(reached.get(name)));
  } else if (what === "events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let number = 0; number < Number(count); number += 1) {
      response.write(`id: ${number}\ndata: tick\n\n`);
      await until(name, number + 1);
    }
    response.end();
  } else if (what === "silent") {
    response.on("close", () => advance(`${name}-left`));
    advance(name);
  } else if (what === "endless") {
    response.on("close", () => advance(`${name}-left`));
    response.write("begun");
  } else if (what === "advance") {
    advance(name);
    response.end();
  } else if (what === "until") {
    await until(name, Number(count));
    response.end();
  } else {
    response.end("fine");
  }
}

async function safely(request, response) {
  try {
    await serve(request, response);
  } catch (error) {
    console.error(error);
    response.destroy(error);
  }
}

const server = process.argv[2] === "2" ? http2.createServer(safely) : http.createServer(safely);
server.listen(0, "127.0.0.1", () => console.log("listening", server.address().port));

// What is agreed goes around the gateway in HTTP/1.1, also where the server itself has HTTP/2.
const around = http.createServer(safely);
around.listen(0, "127.0.0.1", () => console.log("around", around.address().port));
