# What ordinary Rack applications read of a request: base64 of JSON in the response field `x-read`.
# Each name is a dimension, then who reads it; what is not there is left out.
require 'json'
require 'jwt'
require 'puma'
require 'puma/server'
require 'rack'
require 'rack/method_override'

SECRET = ENV.fetch('SECRET')

# What the block gives; nothing when the framework refuses.
def attempt
  yield
rescue StandardError
  nil
end

# A list is looked up as each of its elements (`find_by email: params[:email]`).
def account(value)
  return value.map { |each| account(each) }.compact if value.is_a?(Array)
  return nil unless value.is_a?(String)

  text = value.dup.force_encoding(Encoding::UTF_8).scrub
  text.unicode_normalize(:nfkc).strip.downcase(:fold)
end

def printable(value)
  value.is_a?(String) ? value.dup.force_encoding(Encoding::UTF_8).scrub : value
end

def claims_of(token)
  JWT.decode(token, SECRET, true, { algorithms: %w[HS256 HS384 HS512], leeway: 60 })[0]
end

def subject(token)
  attempt { claims_of(token)['sub']&.to_s }
end

def organisation(token)
  attempt do
    claims = claims_of(token)
    value = claims.key?('org.id') ? claims['org.id'] : claims.dig('org', 'id')
    # Several values are one identity.
    text(value.is_a?(Array) && value.size == 1 ? value[0] : value) unless value.is_a?(Array) && value.size > 1
  end
end

# A list is looked up as each of its elements.
def text(value)
  return value.map { |each| text(each) }.compact if value.is_a?(Array)

  printable(value.to_s) if value.is_a?(String) || value.is_a?(Numeric)
end

# As a column of integers casts it, where all of it is a number.
def number(value)
  attempt { Integer(value.is_a?(String) ? value.strip : value, *(10 if value.is_a?(String))).to_s }
end

def fields(env, body)
  parsed = attempt { JSON.parse(body) }
  params = attempt { fresh(env, body).params['email'] }
  member = parsed.is_a?(Hash) ? parsed['email'] : nil
  {
    'params' => text(params), 'params, number' => number(params),
    'POST' => text(attempt { fresh(env, body).POST['email'] }),
    'JSON.parse' => text(member), 'JSON.parse, number' => number(member)
  }
end

def fresh(env, body)
  Rack::Request.new(env.reject { |name, _| name.start_with?('rack.request.') }.merge('rack.input' => StringIO.new(body)))
end

def emails(env, body)
  parsed = attempt { JSON.parse(body) }
  {
    'params' => account(attempt { fresh(env, body).params['email'] }),
    'POST' => account(attempt { fresh(env, body).POST['email'] }),
    'JSON.parse' => account(parsed.is_a?(Hash) ? parsed['email'] : nil)
  }
end

def bearers(header)
  return {} unless header

  {
    'split' => header.split[1], 'last' => header.split(' ').last,
    'sub' => header.sub(/\ABearer /, ''),
    # As Rails' `authenticate_with_http_token` reads `Bearer` and `Token`.
    'Rails' => header[/\A(?:Token|Bearer)\s+(?:token=)?"?([^",;\s]+)/, 1]
  }
end

# As Rails matches by default: an optional format, an optional slash.
ROUTES = { 'login' => 'POST', 'items/[^/.?]+' => 'DELETE', 'report' => 'GET' }.to_h do |path, method|
  [%r{\A/#{path}(?:\.[^/.?]+)?\z}, "#{method} #{path[/\w+/].delete_suffix('s')}"]
end

def handler(request)
  path = attempt { Rack::Utils.unescape_path(request.path_info) } || request.path_info
  path = path.b.squeeze('/').chomp('/')
  found = ROUTES.find { |pattern, name| path.match?(pattern) && name.start_with?("#{request.request_method} ") }
  found&.last
end

# The part of the path behind `items/`, without the format.
def part(request)
  return nil unless handler(request) == 'DELETE item'

  path = attempt { Rack::Utils.unescape_path(request.path_info) } || request.path_info
  printable(path.b.squeeze('/').chomp('/')[%r{\A/items/([^/.?]+)}, 1])
end

App = lambda do |env|
  body = env['rack.input'].read
  request = Rack::Request.new(env)
  bearer = bearers(request.get_header('HTTP_AUTHORIZATION'))
  key = request.get_header('HTTP_X_API_KEY')
  read = {
    'email' => emails(env, body),
    'field' => fields(env, body),
    'claim' => bearer.merge('whole' => request.get_header('HTTP_AUTHORIZATION')).transform_values { |token| organisation(token) },
    'bearer' => bearer.transform_values { |token| printable(token) },
    'user' => bearer.merge('whole' => request.get_header('HTTP_AUTHORIZATION')).transform_values { |token| subject(token) },
    'cookie' => { 'cookies' => printable(attempt { request.cookies['sid'] }) },
    'query' => { 'GET' => printable(attempt { request.GET['key'] }), 'params' => printable(attempt { request.params['key'] }) },
    'header' => { 'raw' => printable(key), 'stripped' => printable(key&.strip) },
    'host' => { 'host' => attempt { request.host }, 'HTTP_HOST' => request.get_header('HTTP_HOST')&.split(':')&.first },
    'address' => { 'ip' => attempt { request.ip } },
    'path' => { 'plain' => handler(Rack::Request.new(env.merge('REQUEST_METHOD' => env['before']))), 'MethodOverride' => handler(request) },
    'part' => { 'plain' => part(Rack::Request.new(env.merge('REQUEST_METHOD' => env['before']))), 'MethodOverride' => part(request), 'number' => number(part(request)) }
  }
  # Puma says nothing to a request that it cannot read on a connection that it has served before.
  [200, { 'x-read' => [JSON.generate(read)].pack('m0'), 'content-length' => '0', 'connection' => 'close' }, []]
end

stack = Rack::Builder.new do
  use(Class.new do
    def initialize(app) = @app = app

    def call(env)
      env['before'] = env['REQUEST_METHOD']
      # Read again by what follows, as by Rails' middleware.
      env['rack.input'] = StringIO.new(env['rack.input'].read)
      @app.call(env)
    end
  end)
  use Rack::MethodOverride
  use(Class.new do
    def initialize(app) = @app = app

    def call(env)
      env['rack.input'].rewind
      @app.call(env)
    end
  end)
  run App
end

server = Puma::Server.new(stack.to_app, Puma::Events.null, { min_threads: 16, max_threads: 16, persistent_timeout: 600 })
listener = server.add_tcp_listener('127.0.0.1', 0)
puts "listening #{listener.addr[1]}"
$stdout.flush
server.run.join
