// Node's fetch through the gateway: fetch_client.mjs URL AROUND-URL SERVER-VERSION, with the authority in
// NODE_EXTRA_CA_CERTS.

import assert from "node:assert";
import { randomUUID } from "node:crypto";
import { setImmediate as rest } from "node:timers/promises";

assert.ok(globalThis.fetch, "fetch is there from Node 18 on: `apt-get install nodejs`");
const [url, around, behind] = process.argv.slice(2);
// Nothing may hang for longer.
const limit = () => ({ signal: AbortSignal.timeout(10_000) });

async function agree(path) {
  const answer = await fetch(around + path, { method: "POST", ...limit() });
  assert.ok(answer.ok, path);
  await answer.text();
}

async function simple() {
  for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
    const answer = await fetch(`${url}/version/`, { method, ...limit() });
    assert.equal(answer.status, 200);
    assert.deepEqual(await answer.json(), { version: behind, method });
  }
  const head = await fetch(`${url}/version/`, { method: "HEAD", ...limit() });
  assert.equal(await head.text(), "");
  const large = Buffer.alloc(1 << 20, "0123456789abcdef-");
  const answer = await fetch(`${url}/echo/`, { method: "POST", body: large, ...limit() });
  assert.ok(large.equals(Buffer.from(await answer.arrayBuffer())));
}

// Each piece is at the server before the next is sent.
async function streams_up() {
  const name = randomUUID();
  let sent = 0;
  const body = new ReadableStream({
    async pull(controller) {
      if (sent > 0) await agree(`/until/${name}/${sent}`);
      if (sent === 20_000) return controller.close();
      controller.enqueue(new Uint8Array(1000));
      sent += 1000;
    },
  }, { highWaterMark: 0 });
  const options = { method: "POST", body, duplex: "half", ...limit() };
  const answer = await fetch(`${url}/upload/${name}`, options);
  assert.equal(await answer.text(), "20000");
}

// The server sends each event when the last was read.
async function streams_down() {
  const name = randomUUID();
  const headers = { accept: "text/event-stream" };
  const answer = await fetch(`${url}/events/${name}/50`, { headers, ...limit() });
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  let [text, seen] = ["", 0];
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    text += piece;
    while (text.includes(`id: ${seen}\ndata: tick\n\n`)) {
      seen += 1;
      await agree(`/advance/${name}`);
    }
  }
  assert.equal(seen, 50);
}

// A request that is taken back is over at the server too, before its answer and in the middle of it.
async function aborts() {
  const name = randomUUID();
  const silent = new AbortController();
  const never = fetch(`${url}/silent/${name}`, { signal: silent.signal });
  await agree(`/until/${name}/1`);
  silent.abort();
  await assert.rejects(never, { name: "AbortError" });
  await agree(`/until/${name}-left/1`);
  const half = new AbortController();
  const answer = await fetch(`${url}/endless/${name}`, { signal: half.signal });
  const reader = answer.body.getReader();
  assert.equal(Buffer.from((await reader.read()).value).toString(), "begun");
  half.abort();
  await assert.rejects(reader.read(), { name: "AbortError" });
  await agree(`/until/${name}-left/2`);
}

async function many() {
  const one = async () => (await fetch(`${url}/version/`, limit())).json();
  const answers = await Promise.all([...Array(200)].map(one));
  assert.ok(answers.every((answer) => answer.version === behind));
}

async function is_refused() {
  const ask = () => fetch(`${url}/few/`, limit());
  for (let turn = 0; turn < 2; turn += 1) assert.equal(await (await ask()).text(), "fine");
  const answer = await ask();
  assert.equal(answer.status, 429);
  assert.equal(answer.headers.get("content-type"), "application/problem+json");
  assert.ok(Number(answer.headers.get("retry-after")) > 3500);
  assert.match(answer.headers.get("ratelimit"), /"few";r=0/);
  assert.deepEqual((await answer.json())["violated-policies"], ["few"]);
  // An upload without an end is answered too.
  const body = new ReadableStream({
    async pull(controller) {
      // Without a rest the client would never look for an answer.
      await rest();
      controller.enqueue(new Uint8Array(1000));
    },
  });
  const up = { method: "POST", body, duplex: "half", ...limit() };
  assert.equal((await fetch(`${url}/few/`, up)).status, 429);
  assert.equal((await fetch(`${url}/version/`, limit())).status, 200);
}

for (const test of [simple, streams_up, streams_down, aborts, many, is_refused]) {
  await test();
  console.log(test.name);
}
process.exit(0);
