import { assertEquals } from "@std/assert";
import { formatAnswer, parseRequest, pathOf, textAnswer } from "../../../src/wire/http1.ts";

function statusOf(head: string): number | undefined {
  const parsed = parseRequest(head);
  return "status" in parsed ? parsed.status : undefined;
}

Deno.test("a request gives its method, path and authorization", { permissions: "none" }, () => {
  assertEquals(
    parseRequest("GET /metrics?x=1 HTTP/1.1\r\nHost: any\r\naUTHORIZATION:  Bearer t \r\nX: "),
    { method: "GET", path: "/metrics", authorization: "Bearer t" },
  );
  assertEquals(parseRequest("HEAD http://h:1/readyz HTTP/1.0"), {
    method: "HEAD",
    path: "/readyz",
    authorization: undefined,
  });
});

Deno.test("what is no request gets 400", { permissions: "none" }, () => {
  for (
    const head of [
      "GET /readyz",
      "GET  /readyz HTTP/1.1",
      "GET /readyz HTTP/2.0",
      "GET /a b HTTP/1.1",
      "GET / HTTP/1.1\r\nno colon",
      "GET / HTTP/1.1\r\n folded: x",
      "GET / HTTP/1.1\r\nname : x",
      "GET / HTTP/1.1\r\n: x",
      "GET / HTTP/1.1\r\nAuthorization: a\r\nauthorization: b",
    ]
  ) {
    assertEquals(statusOf(head), 400, JSON.stringify(head));
  }
});

Deno.test("methods other than GET and HEAD get 405", { permissions: "none" }, () => {
  for (const method of ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"]) {
    assertEquals(statusOf(`${method} /readyz HTTP/1.1`), 405);
  }
});

Deno.test("the path is what stands before the query", { permissions: "none" }, () => {
  assertEquals(pathOf("/readyz?a=/b#c"), "/readyz");
  assertEquals(pathOf("https://host"), "/");
  assertEquals(pathOf("*"), "*");
});

Deno.test("an answer has a date, a length and closes", { permissions: "none" }, () => {
  const date = new Date(Date.UTC(2030, 0, 2, 3, 4, 5));
  const answer = { ...textAnswer(503, "dräining"), headers: { Allow: "GET" } };
  const head = "HTTP/1.1 503 Service Unavailable\r\nDate: Wed, 02 Jan 2030 03:04:05 GMT\r\n" +
    "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 9\r\nAllow: GET\r\n" +
    "Connection: close\r\n\r\n";
  assertEquals(new TextDecoder().decode(formatAnswer(answer, true, date)), head + "dräining");
  assertEquals(new TextDecoder().decode(formatAnswer(answer, false, date)), head);
});
