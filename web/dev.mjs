// Serves the page, built anew for each load, and forwards all other requests to a server:
// `node dev.mjs [UPSTREAM] [PORT]`, by default http://127.0.0.1:8080 and 8081.
import { createHash } from "node:crypto";
import { createServer, request } from "node:http";
import { fileURLToPath } from "node:url";
import { bundle } from "./build.mjs";

/** The policy of the server: only the page's own script and style run. `urls` are those of servers of tools. */
export function policy(page, urls) {
  const hash = (tag) => {
    const text = page.slice(page.indexOf(`<${tag}>`) + tag.length + 2, page.indexOf(`</${tag}>`));
    return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  };
  const connected = ["'self'", ...urls.map((url) => new URL(url).origin)].join(" ");
  return (
    `default-src 'none'; script-src ${hash("script")}; style-src ${hash("style")}; connect-src ${connected}; ` +
    "img-src data:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
    "require-trusted-types-for 'script'; trusted-types dompurify"
  );
}

/** The servers of tools that the page may use. */
async function toolServers(upstream) {
  try {
    const { servers } = await (await fetch(new URL("/mcp-servers", upstream))).json();
    return servers.map(({ url }) => url);
  } catch {
    return [];
  }
}

/** Starts the proxy. `page` gives the text of the page, `upstream` the address of the server. */
export async function startProxy({ page, upstream, port = 0 }) {
  const server = createServer(async (incoming, outgoing) => {
    if (incoming.url.split("?")[0] === "/") {
      const text = await page();
      outgoing.writeHead(200, {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": policy(text, await toolServers(upstream())),
      });
      outgoing.end(text);
      return;
    }
    const target = new URL(incoming.url, upstream());
    const { host: _host, origin: _origin, ...headers } = incoming.headers;
    const forwarded = request(target, { method: incoming.method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.on("error", () => outgoing.destroy());
      answer.on("aborted", () => outgoing.destroy());
      answer.pipe(outgoing);
    });
    // As if the server itself were not there.
    forwarded.on("error", () => outgoing.destroy());
    outgoing.on("close", () => forwarded.destroy());
    incoming.pipe(forwarded);
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return server;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [upstream = "http://127.0.0.1:8080", port = "8081"] = process.argv.slice(2);
  await startProxy({ page: bundle, upstream: () => upstream, port: Number(port) });
  console.log(`http://127.0.0.1:${port} with the server at ${upstream}`);
}
