// The echo server of `ws`. Says `listening PORT`, and how each connection closed.

const { WebSocketServer } = require("ws");

const options = { host: "127.0.0.1", port: 0, perMessageDeflate: true, maxPayload: 1 << 24 };
const server = new WebSocketServer(options, () => console.log("listening", server.address().port));

server.on("connection", (socket) => {
  socket.on("message", (data, binary) => {
    const text = binary ? "" : data.toString();
    if (text.startsWith("close ")) {
      const [, code, ...reason] = text.split(" ");
      socket.close(Number(code), reason.join(" "));
    } else if (text === "ping") {
      socket.once("pong", (data) => socket.send(data.equals(Buffer.from("here")) ? "pong" : "?"));
      socket.ping("here");
    } else if (text === "pieces") {
      socket.send("one ", { fin: false });
      socket.send("two ", { fin: false });
      socket.send("three", { fin: true });
    } else {
      socket.send(data, { binary });
    }
  });
  socket.on("close", (code, reason) => console.log("closed", code, reason.toString()));
});
