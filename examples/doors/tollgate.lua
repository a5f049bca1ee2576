-- Asks tollgate whether a request may be served, and gives the client its refusal.

local DOOR = "http://127.0.0.1:8082/"
-- Without an answer in this time, in milliseconds, clients get 504, or 503 if nobody listens.
local TIMEOUT = 1000

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
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if not LEFT_OUT[name] then
			local list = {}
			for index = 0, #values do list[index + 1] = values[index] end
			headers[name] = list
		end
	end
	headers["x-forwarded-method"] = { txn.sf:method() }
	headers["x-forwarded-uri"] = { txn.sf:pathq() }
	headers["x-forwarded-for"] = { txn.sf:src() }
	local response = core.httpclient():get { url = DOOR, headers = headers, timeout = TIMEOUT }
	if response.status == 200 then return end
	-- HAProxy's client says 0 where there is no answer.
	if response.status < 300 then return refuse(txn, 503, {}, "") end
	refuse(txn, response.status, response.headers, response.body or "")
end)
