import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { createAtprotoSource } from "../../src/analysis/sources/atproto.http.js";
import { openBucket, outcome, readPosts } from "../support/analysis-sources.js";
import { type AppView, startAppView } from "../support/appview.js";
import { type ConnectProxy, startConnectProxy } from "../support/connect-proxy.js";

const [ADA, BOB] = ["did:plc:ada", "did:plc:bob"];
const VARIABLES = ["http_proxy", "no_proxy"] as const;
const before = VARIABLES.map((name) => [name, process.env[name]] as const);

let view: AppView;
let proxy: ConnectProxy;

beforeEach(async () => {
  [view, proxy] = await Promise.all([startAppView(), startConnectProxy()]);
  process.env["http_proxy"] = proxy.url;
});

afterEach(async () => {
  for (const [name, value] of before) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  await Promise.all([view.stop(), proxy.stop()]);
});

const sourceOf = () => createAtprotoSource({ url: view.url, bucket: openBucket().bucket });

test("an AppView is asked through the proxy that is configured, and a proxy that refuses is an outage for all", async () => {
  view.post(ADA, { createdAt: Date.now() });
  const source = sourceOf();
  expect(await readPosts(source, ADA)).toHaveLength(1);
  expect(proxy.targets).toEqual([new URL(view.url).host]);
  proxy.refuse(true);
  await view.stop();
  expect(await outcome(source, BOB)).toBe("unavailable");
});

test("an AppView that no_proxy names is asked directly", async () => {
  process.env["no_proxy"] = "other.example, 127.0.0.1";
  view.post(ADA, { createdAt: Date.now() });
  expect(await readPosts(sourceOf(), ADA)).toHaveLength(1);
  expect(proxy.targets).toEqual([]);
});
