#!/bin/sh
# Tests of the policies: each line is a request, and what must become of it. No gateway runs, and nothing is counted.
# Run it beside tollgate.yaml. Every difference is printed; the exit code is 1 if there is one.
failed=0
expect() {
    tollgate explain "$@" || failed=1
}

expect GET /api/items -H 'x-api-key: abc' --expect status=200 --expect route=api --expect limit=per-key
expect GET /api/items --expect limit=per-ip --expect 'limit!=per-key'
expect POST /login --expect upstream=api --expect limit=failed-logins
expect POST /api/items --expect status=405
expect GET /admin --expect status=404 --expect route=none
exit $failed
