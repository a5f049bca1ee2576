-- Asks tollgate whether a request may be served, and gives the client its refusal.

-- Refusals are 401 or 403, so that another status is a failure. Tollgate-Status has the status itself.
local DOOR = "http://127.0.0.1:8082/?status=403"
-- Without an answer in this time, in milliseconds, clients get 504, or 503 if nobody listens.
local TIMEOUT = 1000
-- HAProxy takes at most 101 fields, and the check adds some.
local MAX_FIELDS = 90

-- Fields that are of the connection, or that describe the request to tollgate.
local LEFT_OUT = {
	["connection"] = true, ["content-length"] = true, ["expect"] = true, ["forwarded"] = true,
	["keep-alive"] = true, ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
	["x-forwarded-for"] = true, ["x-forwarded-host"] = true, ["x-forwarded-method"] = true,
	["x-forwarded-uri"] = true, ["x-original-method"] = true, ["x-original-uri"] = true, ["x-original-url"] = true,
}

local function refuse(txn, status, headers, body)
	local reply = txn:reply { status = status }
	for name, values in pairs(headers) do
		if name ~= "connection" and name ~= "content-length" and name ~= "transfer-encoding" then
			for _, value in pairs(values) do reply:add_header(name, value) end
		end
	end
	reply:set_body(body)
	txn:done(reply)
end

core.register_action("tollgate", { "http-req" }, function(txn)
	local headers, count = {}, 0
	for name, values in pairs(txn.http:req_get_headers()) do
		local list = {}
		for index = 0, #values do
			list[index + 1] = values[index]
			count = count + 1
		end
		if not LEFT_OUT[name] then headers[name] = list end
	end
	if count > MAX_FIELDS then return refuse(txn, 431, {}, "") end
	headers["x-forwarded-method"] = { txn.sf:method() }
	headers["x-forwarded-uri"] = { txn.sf:pathq() }
	headers["x-forwarded-for"] = { txn.sf:src() }
	local response = core.httpclient():get { url = DOOR, headers = headers, timeout = TIMEOUT }
	if response.status == 200 then return txn:set_var("txn.tollgate", "admitted") end
	local status = response.headers and response.headers["tollgate-status"]
	-- A failure has no such field: HAProxy's client says 503 or 504, or 0. A request that tollgate cannot read has none either.
	if not status then return refuse(txn, response.status >= 400 and response.status or 503, {}, "") end
	refuse(txn, tonumber(status[0]), response.headers, response.body or "")
end)
