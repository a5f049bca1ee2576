// `ws` through the gateway: ws_client.cjs URL, with the authority in NODE_EXTRA_CA_CERTS.

const assert = require("node:assert");
const { once } = require("node:events");
const WebSocket = require("ws");

const url = process.argv[2];
const sizes = [0, 1, 125, 126, 65535, 65536, 1 << 20, (3 << 20) + 1];

async function open(path = "/", options = {}) {
  const socket = new WebSocket(url + path, options);
  await once(socket, "open");
  return socket;
}

async function asks(socket, message, options = {}) {
  socket.send(message, options);
  const [data, binary] = await once(socket, "message");
  return binary ? data : data.toString();
}

async function close(socket, code, reason) {
  const closed = once(socket, "close");
  socket.close(code, reason);
  return closed;
}

async function echo() {
  for (const perMessageDeflate of [true, false]) {
    const socket = await open("/", { perMessageDeflate });
    for (const size of sizes) {
      const text = "ä".repeat(size / 2);
      assert.equal(await asks(socket, text), text);
      const bytes = Buffer.alloc(size, "0123456789abcdef-");
      assert.ok(bytes.equals(await asks(socket, bytes)), `${size}`);
    }
    await close(socket);
  }
}

async function pings() {
  const socket = await open();
  socket.ping("there");
  const [data] = await once(socket, "pong");
  assert.equal(data.toString(), "there");
  assert.equal(await asks(socket, "ping"), "pong");
  await close(socket);
}

async function fragments() {
  const socket = await open();
  socket.send("a".repeat(10), { fin: false });
  socket.send("", { fin: false });
  const whole = await asks(socket, "b".repeat(70000), { fin: true });
  assert.equal(whole, "a".repeat(10) + "b".repeat(70000));
  assert.equal(await asks(socket, "pieces"), "one two three");
  await close(socket);
}

async function closes() {
  const [code] = await close(await open(), 4001, "from the client");
  assert.equal(code, 4001);
  const socket = await open();
  socket.send("close 4002 from the server");
  const [theirs, reason] = await once(socket, "close");
  assert.deepEqual([theirs, reason.toString()], [4002, "from the server"]);
}

async function many() {
  const one = async (number) => {
    const socket = await open();
    for (let turn = 0; turn < 10; turn += 1) {
      assert.equal(await asks(socket, `${number} ${turn}`), `${number} ${turn}`);
    }
    await close(socket);
  };
  await Promise.all([...Array(100).keys()].map(one));
}

async function is_refused() {
  for (let turn = 0; turn < 2; turn += 1) {
    await close(await open("/few/"));
  }
  const socket = new WebSocket(`${url}/few/`);
  const [, answer] = await once(socket, "unexpected-response");
  assert.equal(answer.statusCode, 429);
  assert.ok(Number(answer.headers["retry-after"]) > 3500);
  let body = "";
  for await (const piece of answer) body += piece;
  assert.deepEqual(JSON.parse(body)["violated-policies"], ["few"]);
  // Without anybody who looks at the answer it is an error that names the status.
  const [error] = await once(new WebSocket(`${url}/few/`), "error");
  assert.match(error.message, /429/);
}

async function main() {
  for (const test of [echo, pings, fragments, closes, many, is_refused]) {
    await test();
    console.log(test.name);
  }
  process.exit(0);
}

main();
