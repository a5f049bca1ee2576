// What ordinary Express applications read of a request: base64 of JSON in the response field `x-read`.
// Each name is DIMENSION/WHO READS IT; what is not there is left out.
'use strict';
const { Readable } = require('stream');
const cookieParser = require('cookie-parser');
const express = require('express');
const jwt = require('jsonwebtoken');
const methodOverride = require('method-override');
const multer = require('multer');

const SECRET = process.env.SECRET;
const app = express();
app.set('trust proxy', 'loopback');

// The body, once, so that several parsers can read it.
app.use((req, res, next) => {
  const chunks = [];
  req.on('data', (chunk) => chunks.push(chunk));
  req.on('end', () => { req.raw = Buffer.concat(chunks); next(); });
  req.on('error', next);
});

// What a list of middleware makes of the body; nothing when one of them refuses it.
function parse(req, ...stack) {
  const copy = Readable.from(req.raw.length ? [req.raw] : [], { objectMode: false });
  Object.assign(copy, { headers: req.headers, rawHeaders: req.rawHeaders, method: req.method, url: req.url });
  return new Promise((resolve) => {
    const step = (error) => {
      if (error) return resolve(undefined);
      const next = stack.shift();
      if (!next) return resolve(copy.body);
      try { next(copy, {}, step); } catch { resolve(undefined); }
    };
    step();
  });
}

const BODIES = {
  'body-parser': [express.json(), express.urlencoded({ extended: true })],
  querystring: [express.json(), express.urlencoded({ extended: false })],
  'json of any type': [express.json({ type: () => true })],
  'form of any type': [express.urlencoded({ extended: true, type: () => true })],
  multer: [multer().none()],
};

// `==`, object keys and most database drivers read a list of one as its element.
const coerced = (value) => (Array.isArray(value) && value.length === 1 ? coerced(value[0]) : value);
const account = (email) => (typeof email === 'string' ? email.normalize('NFKC').trim().toLowerCase() : undefined);
// As what checks for digits and then computes with the number.
const whole = (value) => (/^[+-]?\d+$/.test(value) ? String(Number(value)) : undefined);
const text = (value) => (value === undefined || value === null ? undefined : String(value));

function credentials(req, read) {
  const header = req.headers.authorization;
  if (header !== undefined) {
    const parts = header.split(' ');
    read.bearer = {
      split: parts[1],
      replaced: header.replace(/^bearer /i, ''),
      matched: (header.match(/^bearer\s+(\S+)/i) || [])[1],
      strict: parts.length === 2 && /^bearer$/i.test(parts[0]) ? parts[1] : undefined,
      last: header.split(/\s+/).pop(),
    };
    read.user = {};
    read.claim = {};
    for (const [how, token] of Object.entries({ ...read.bearer, whole: header })) {
      try {
        const claims = jwt.verify(token, SECRET, { clockTolerance: 60 });
        read.user[how] = text(claims.sub);
        read.claim[how] = text(coerced(claims['org.id'] ?? claims.org?.id));
      } catch { /* nobody */ }
    }
  }
  read.cookie = { 'cookie-parser': text(coerced(req.cookies.sid)) };
  read.query = { qs: text(coerced(req.query.key)) };
  read.header = { raw: req.headers['x-api-key'], trimmed: text(req.get('x-api-key'))?.trim() };
}

const router = express.Router();
const handler = (name) => (req, res, next) => { req.handler = name; next(); };
router.post('/login', handler('POST login'));
router.delete('/items/:id', (req, res, next) => { req.part = req.params.id; next(); }, handler('DELETE item'));
router.get('/report', handler('GET report'));
const routed = (how) => (req, res, next) => {
  req.handler = req.part = undefined;
  router(req, res, (error) => {
    if (error) return next(error);
    (req.read.path ||= {})[how] = req.handler;
    (req.read.part ||= {})[how] = req.part;
    req.read.part[`${how}, number`] = whole(req.part);
    next();
  });
};

app.use(cookieParser());
app.use(async (req, res, next) => {
  req.read = {
    host: { hostname: req.hostname, header: (req.headers.host || '').split(':')[0] },
    address: { ip: req.ip },
    email: {},
    field: {},
  };
  credentials(req, req.read);
  for (const [how, stack] of Object.entries(BODIES)) {
    const body = await parse(req, ...stack);
    const value = body && typeof body === 'object' ? coerced(body.email) : undefined;
    req.read.email[how] = account(value);
    req.read.field[how] = text(value);
    req.read.field[`${how}, number`] = whole(value);
    if (how === 'body-parser') req.body = body;
    if (how === 'json of any type') req.json = body;
  }
  const either = (req.body && req.body.email) || req.query.email;
  req.read.email['body or query'] = account(coerced(either));
  next();
});
app.use(routed('plain'));
app.use(methodOverride());
app.use(methodOverride('X-HTTP-Method'));
app.use(methodOverride('X-Method-Override'));
app.use(methodOverride('_method'));
app.use(methodOverride((req) => (req.body && typeof req.body === 'object' ? req.body._method : undefined)));
app.use(routed('method-override'));
// As Parse Server, which reads JSON of any type.
app.use(methodOverride((req) => (req.json && typeof req.json === 'object' ? req.json._method : undefined)));
app.use(routed('json of any type'));
app.use((req, res) => {
  res.set('x-read', Buffer.from(JSON.stringify(req.read)).toString('base64'));
  res.status(200).end();
});
// eslint-disable-next-line no-unused-vars
app.use((error, req, res, next) => res.status(error.status || 500).end());

const server = app.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
server.keepAliveTimeout = 0;
