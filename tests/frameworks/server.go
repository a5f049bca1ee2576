// What ordinary programs on net/http read of a request: base64 of JSON in the response field `x-read`.
// Each name is a dimension, then who reads it; what is not there is left out.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/golang-jwt/jwt"
)

type reading map[string]map[string]string

func (read reading) put(dimension, how, value string) {
	if value == "" {
		return
	}
	if read[dimension] == nil {
		read[dimension] = map[string]string{}
	}
	read[dimension][how] = value
}

func account(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

func claimsOf(token string) jwt.MapClaims {
	parsed, err := jwt.Parse(token, func(token *jwt.Token) (interface{}, error) {
		if _, ok := token.Method.(*jwt.SigningMethodHMAC); !ok {
			return nil, fmt.Errorf("another algorithm")
		}
		return []byte(os.Getenv("SECRET")), nil
	})
	if err != nil {
		return nil
	}
	return parsed.Claims.(jwt.MapClaims)
}

func subject(claims jwt.MapClaims) string {
	sub, _ := claims["sub"].(string)
	return sub
}

func organisation(claims jwt.MapClaims) string {
	if whole, ok := claims["org.id"]; ok {
		return textOf(whole)
	}
	org, _ := claims["org"].(map[string]interface{})
	return textOf(org["id"])
}

// A text or a number, also as the only one of a list.
func textOf(value interface{}) string {
	switch value := value.(type) {
	case string:
		return value
	case float64:
		return fmt.Sprint(value)
	case []interface{}:
		if len(value) == 1 {
			return textOf(value[0])
		}
	}
	return ""
}

func number(text string) string {
	whole, err := strconv.Atoi(text)
	if err != nil {
		return ""
	}
	return strconv.Itoa(whole)
}

// A copy of the request with its body to be read anew.
func copyOf(r *http.Request, body []byte) *http.Request {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	return again
}

func emails(read reading, r *http.Request, body []byte) {
	read.put("email", "FormValue", account(copyOf(r, body).FormValue("email")))
	read.put("email", "PostFormValue", account(copyOf(r, body).PostFormValue("email")))
	var login struct {
		Email string `json:"email"`
	}
	// An error in what follows the value does not matter to a decoder of streams.
	if json.NewDecoder(bytes.NewReader(body)).Decode(&login) == nil {
		read.put("email", "json.Decoder", account(login.Email))
	}
	form := copyOf(r, body).FormValue("email")
	read.put("field", "FormValue", form)
	read.put("field", "FormValue, number", number(form))
	read.put("field", "PostFormValue", copyOf(r, body).PostFormValue("email"))
	read.put("field", "json.Decoder", login.Email)
	var numbered struct {
		Email int64 `json:"email"`
	}
	if json.NewDecoder(bytes.NewReader(body)).Decode(&numbered) == nil && numbered.Email != 0 {
		read.put("field", "json.Decoder, number", fmt.Sprint(numbered.Email))
	}
	var whole map[string]interface{}
	if json.Unmarshal(body, &whole) == nil {
		text, _ := whole["email"].(string)
		read.put("email", "json.Unmarshal", account(text))
		read.put("field", "json.Unmarshal", textOf(whole["email"]))
	}
}

func credentials(read reading, r *http.Request, body []byte) {
	header := r.Header.Get("Authorization")
	tokens := map[string]string{"trimmed": strings.TrimPrefix(header, "Bearer ")}
	if parts := strings.Split(header, " "); len(parts) > 1 {
		tokens["split"] = parts[1]
	}
	if parts := strings.Fields(header); len(parts) > 1 {
		tokens["fields"] = parts[1]
	}
	if parts := strings.Split(header, "Bearer"); len(parts) == 2 {
		tokens["halves"] = strings.TrimSpace(parts[1])
	}
	if len(header) > 7 && strings.EqualFold(header[:7], "bearer ") {
		tokens["sliced"] = header[7:]
	}
	for how, token := range tokens {
		read.put("bearer", how, token)
		claims := claimsOf(token)
		read.put("user", how, subject(claims))
		read.put("claim", how, organisation(claims))
	}
	if cookie, err := r.Cookie("sid"); err == nil {
		read.put("cookie", "Cookie", cookie.Value)
	}
	read.put("address", "Gin", address(r.Header.Get("X-Forwarded-For")))
	read.put("query", "Query", r.URL.Query().Get("key"))
	read.put("query", "FormValue", copyOf(r, body).FormValue("key"))
	read.put("query", "PostFormValue", copyOf(r, body).PostFormValue("key"))
	key := r.Header.Get("X-Api-Key")
	read.put("header", "Get", key)
	read.put("header", "TrimSpace", strings.TrimSpace(key))
}

// As Gin names the client behind trusted proxies: from the right, up to what is no address.
func address(list string) string {
	items := strings.Split(list, ",")
	for i := len(items) - 1; i >= 0; i-- {
		ip := net.ParseIP(strings.TrimSpace(items[i]))
		if ip == nil {
			return ""
		}
		if !ip.IsLoopback() {
			return ip.String()
		}
	}
	return ""
}

func serve(virtual, name string, methods ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		read := reading{}
		emails(read, r, body)
		credentials(read, r, body)
		read.put("host", "Host", strings.Split(r.Host, ":")[0])
		read.put("host", "ServeMux", virtual)
		item := strings.TrimPrefix(r.URL.Path, "/items/")
		for _, method := range methods {
			if r.Method == method && (name != "item" || !strings.Contains(item, "/")) {
				read.put("path", "ServeMux", method+" "+name)
				if name == "item" {
					read.put("part", "ServeMux", item)
					read.put("part", "ServeMux, number", number(item))
				}
			}
		}
		text, _ := json.Marshal(read)
		w.Header().Set("x-read", base64.StdEncoding.EncodeToString(text))
	}
}

func main() {
	mux := http.NewServeMux()
	for _, host := range []string{"", "a.test"} {
		mux.HandleFunc(host+"/login", serve(host, "login", "POST"))
		mux.HandleFunc(host+"/items/", serve(host, "item", "DELETE"))
		mux.HandleFunc(host+"/report", serve(host, "report", "GET", "HEAD"))
		mux.HandleFunc(host+"/", serve(host, "", ""))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("listening %d\n", listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, mux))
}
