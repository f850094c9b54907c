// No cookie and no storage holds the token: a page of another origin cannot make the browser send it.
let token = "";

export const useToken = (given) => {
  token = given.trim();
};

/** Asks the server; with a body it acts. Throws an Error with the status of the answer. */
export async function call(path, body) {
  const response = await fetch(`api/${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    credentials: "omit",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const answer = await response.json();
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.detail ?? `status ${response.status}`), { status: response.status });
}

export const pathOf = (kind, id) => `${kind}/${encodeURIComponent(id)}`;
