import { answered } from "./answered.js";

/**
 * Returns the function that calls what the sandbox alone has: it writes as any user and breaks services. A gateway has no
 * such routes, since services of a network write over gRPC. Everything else the page asks by the client.
 */
export const createCall = (message) => async (method, path, body) => {
  const headers = { "content-type": "application/json" };
  const response = await answered(message, fetch(path, { method, headers, body: JSON.stringify(body) }));
  const answer = response.status === 204 ? {} : await response.json();
  if (!response.ok) throw new Error(answer.detail ?? `status ${response.status}`);
  return answer;
};
