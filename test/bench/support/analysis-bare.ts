import type { AddressInfo } from "node:net";
import express from "express";

/** Parses the request and answers as many bytes as the route of analyses, and does nothing else. */
const app = express().disable("x-powered-by").disable("etag");
app.post("/api/v1/timeline/analyze", express.json(), (_request, response) => {
  const id = "0190a5b2-7c3e-7f2a-9b1d-3c4e5f607182";
  const status_url = `/api/v1/timeline/analyses/${id}`;
  const estimated_completion = new Date().toISOString();
  response
    .status(202)
    .location(status_url)
    .json({ analysis_id: id, status: "queued", estimated_completion, status_url });
});
const server = app.listen(0, "127.0.0.1", () => process.send?.((server.address() as AddressInfo).port));
