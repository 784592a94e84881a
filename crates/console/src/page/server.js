// What the page asks the server. The token is kept for this tab alone, as long as the tab is there, and is never part of an address.

const TOKEN = "pithead-token";
const PAGE = "pithead-page";

/** Why the server did not do what it was asked for. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.hint = error.hint ?? null;
  }
}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
}

/** Which of several open pages this is: each has settings of its own at the server. */
function page() {
  let name = sessionStorage.getItem(PAGE);
  if (!name) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    name = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(PAGE, name);
  }
  return name;
}

/** Asks for JSON; with a body, has something done. Fails with `Refused`, or with what the browser says of a lost connection. */
export async function ask(path, body, signal) {
  const headers = { "x-pithead-page": page() };
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.authorization = `Bearer ${token}`;
  const request = { headers, signal, cache: "no-store", credentials: "same-origin", redirect: "error" };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(body) });
  }
  const answer = await fetch(path, request);
  const document = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, document.error ?? { message: `status ${answer.status}` });
  return document;
}
