<?php
// What ordinary PHP applications read of a request: base64 of JSON in the response field `x-read`.
// Each name is a dimension, then who reads it; what is not there is left out.

$secret = getenv('SECRET');
$raw = file_get_contents('php://input');
$type = $_SERVER['CONTENT_TYPE'] ?? '';

function text($value) { return is_string($value) || is_int($value) ? (string) $value : null; }
function account($email) { return is_string($email) ? strtolower(trim($email)) : null; }
function decoded(string $part) { return base64_decode(strtr($part, '-_', '+/')); }

// As the usual libraries do: the algorithm from the key, `exp` if it is there, a minute of leeway.
function claims(?string $token, string $secret) {
    $parts = explode('.', $token ?? '');
    if (count($parts) !== 3) return null;
    $head = json_decode(decoded($parts[0]), true);
    $claims = json_decode(decoded($parts[1]), true);
    $known = ['HS256' => 'sha256', 'HS384' => 'sha384', 'HS512' => 'sha512'];
    $hash = $known[is_array($head) ? $head['alg'] ?? '' : ''] ?? null;
    if ($hash === null || !is_array($claims)) return null;
    if (!hash_equals(hash_hmac($hash, "$parts[0].$parts[1]", $secret, true), decoded($parts[2]))) return null;
    if (isset($claims['exp']) && time() - 60 >= $claims['exp']) return null;
    if (isset($claims['nbf']) && time() + 60 < $claims['nbf']) return null;
    return $claims;
}

// As what computes with a number where all of it is digits.
function number($value) {
    return is_int($value) || (is_string($value) && preg_match('/^[+-]?[0-9]+$/', $value)) ? (string) (int) $value : null;
}

// A number as text, also as the only one of a list; blanks are cut, as Laravel does.
function plain($value) {
    if (is_array($value) && count($value) === 1) return plain($value[array_key_first($value)]);
    return is_string($value) || is_int($value) || is_float($value) ? trim((string) $value) : null;
}

$read = ['email' => [], 'bearer' => [], 'user' => []];
$json = json_decode($raw, true);
$read['email']['$_POST'] = account($_POST['email'] ?? null);
$read['email']['$_REQUEST'] = account($_REQUEST['email'] ?? null);
$read['email']['json_decode'] = account(is_array($json) ? $json['email'] ?? null : null);
parse_str($raw, $parsed);
$read['email']['parse_str'] = account($parsed['email'] ?? null);
if (str_contains($type, '/json') || str_contains($type, '+json')) {
    $read['email']['framework'] = $read['email']['json_decode'];
}

$fields = [
    '$_POST' => $_POST['email'] ?? null, '$_REQUEST' => $_REQUEST['email'] ?? null,
    'json_decode' => is_array($json) ? $json['email'] ?? null : null, 'parse_str' => $parsed['email'] ?? null,
];
foreach ($fields as $how => $value) {
    $read['field'][$how] = plain($value);
    $read['field']["$how, number"] = number($value);
}

$header = $_SERVER['HTTP_AUTHORIZATION'] ?? null;
if ($header !== null) {
    $read['bearer']['matched'] = preg_match('/Bearer\s(\S+)/', $header, $found) ? $found[1] : null;
    $read['bearer']['Laravel'] = ($at = strripos($header, 'Bearer ')) === false
        ? null : explode(',', substr($header, $at + 7))[0];
    $read['bearer']['split'] = explode(' ', $header)[1] ?? null;
    $read['bearer']['substr'] = stripos($header, 'bearer ') === 0 ? trim(substr($header, 7)) : null;
    foreach ($read['bearer'] + ['whole' => $header] as $how => $token) {
        $claims = claims($token, $secret);
        $read['user'][$how] = text($claims['sub'] ?? null);
        $organisation = is_array($claims['org'] ?? null) ? $claims['org']['id'] ?? null : null;
        $read['claim'][$how] = plain($claims['org.id'] ?? $organisation);
    }
}
$read['cookie'] = ['$_COOKIE' => text($_COOKIE['sid'] ?? null)];
$read['query'] = ['$_GET' => text($_GET['key'] ?? null), '$_REQUEST' => text($_REQUEST['key'] ?? null), '$_POST' => text($_POST['key'] ?? null)];
$key = $_SERVER['HTTP_X_API_KEY'] ?? null;
$read['header'] = ['raw' => $key, 'trimmed' => $key === null ? null : trim($key)];

// As Symfony and Laravel behind a trusted proxy.
$host = explode(',', $_SERVER['HTTP_X_FORWARDED_HOST'] ?? $_SERVER['HTTP_HOST'] ?? '')[0];
$read['host'] = ['framework' => strtolower(preg_replace('/:\d+$/', '', trim($host)))];
$read['host']['HTTP_HOST'] = explode(':', $_SERVER['HTTP_HOST'] ?? '')[0];

// As Symfony names the client behind trusted proxies: ports are cut, what is no address is left out.
foreach (explode(',', $_SERVER['HTTP_X_FORWARDED_FOR'] ?? '') as $address) {
    $address = trim($address);
    if (str_contains($address, '.') && ($colon = strpos($address, ':')) !== false) {
        $address = substr($address, 0, $colon);
    } elseif (str_starts_with($address, '[')) {
        $address = substr($address, 1, strpos($address, ']') - 1);
    }
    if (filter_var($address, FILTER_VALIDATE_IP) && !str_starts_with($address, '127.')) {
        $read['address'] = ['Symfony' => $address];
    }
}

$method = $_SERVER['REQUEST_METHOD'];
$override = $method;
if ($method === 'POST') {
    $override = $_SERVER['HTTP_X_HTTP_METHOD_OVERRIDE'] ?? $_POST['_method'] ?? $_GET['_method'] ?? $method;
    $override = is_string($override) ? strtoupper($override) : $method;
}
$path = rawurldecode(explode('?', $_SERVER['REQUEST_URI'])[0]);
// As CodeIgniter 3 takes a path from the target, or from the query beside none.
$asked = explode('?', $_SERVER['REQUEST_URI'], 2);
$uri = preg_replace('#^/index\.php#', '', $asked[0]);
if (trim($uri, '/') === '' && str_starts_with($asked[1] ?? '', '/')) {
    $uri = explode('?', $asked[1], 2)[0];
}
$uri = implode('/', array_filter(explode('/', $uri), fn($segment) => $segment !== '' && $segment !== '..'));
if ($override === 'DELETE' && preg_match('#^items/([^/]+)$#D', $uri, $found)) {
    $read['path']['CodeIgniter'] = 'DELETE item';
    $read['part']['CodeIgniter'] = rawurldecode($found[1]);
}

foreach (['script' => $method, 'framework' => $override] as $how => $verb) {
    $script = basename($_SERVER['SCRIPT_NAME'], '.php');
    if ($verb === 'POST' && $script === 'login') $read['path'][$how] = 'POST login';
    if ($verb === 'DELETE' && preg_match('#^/items/([^/]+)$#D', rtrim($path, '/'), $found)) {
        $read['path'][$how] = 'DELETE item';
        $read['part'][$how] = $found[1];
    }
    if ($verb === 'GET' && $script === 'report') $read['path'][$how] = 'GET report';
}

foreach ($read['part'] ?? [] as $how => $part) {
    $read['part']["$how, number"] = number($part);
}
header('x-read: ' . base64_encode(json_encode($read, JSON_INVALID_UTF8_SUBSTITUTE)));
header('content-length: 0');
