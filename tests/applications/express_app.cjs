// A shop of Express: a cart in a session, and a WebSocket that knows the session.
'use strict';
const http = require('http');
const express = require('express');
const session = require('express-session');
const { WebSocketServer } = require('ws');

const app = express();
const sessions = session({ secret: 'of the tests', resave: false, saveUninitialized: false });
app.use(sessions);
app.post('/login', (req, res) => {
  req.session.cart = [];
  req.session.user = req.query.user;
  res.redirect('/cart');
});
app.get('/cart', (req, res) => {
  if (!req.session.user) return res.status(401).json({ error: 'no session' });
  res.json({ user: req.session.user, cart: req.session.cart });
});
app.post('/cart/:item', (req, res) => {
  req.session.cart.push(req.params.item);
  res.redirect(303, '/cart');
});

const server = http.createServer(app);
const sockets = new WebSocketServer({ noServer: true });
server.on('upgrade', (req, socket, head) => {
  sessions(req, {}, () => {
    if (!req.session.user) return socket.end('HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: 0\r\n\r\n');
    sockets.handleUpgrade(req, socket, head, (client) => {
      client.on('message', (data) => client.send(`${req.session.user}: ${data}`));
    });
  });
});
server.listen(0, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));
