// Keeps a page current: on a hint it reads itself again and exchanges the parts that have changed. Without this script every
// page works too, as it was when it was asked for.
"use strict";
(() => {
  const root = document.documentElement.dataset.root || "";
  const LEAST = 500; // milliseconds between two reads of this page
  const parts = new Map(); // what the server last said of each part, before this script wrote times into it
  const remember = () => document.querySelectorAll("[data-live]").forEach((part) => parts.set(part.id, part.innerHTML));
  remember();

  const span = (seconds) => {
    for (const [limit, size, unit] of [[60, 1, "s"], [3600, 60, "m"], [86400, 3600, "h"]])
      if (seconds < limit) return `${Math.floor(seconds / size)} ${unit}`;
    return `${Math.floor(seconds / 86400)} d`;
  };
  const times = () => {
    document.querySelectorAll("time[datetime]").forEach((time) => {
      const seconds = (Date.now() - Date.parse(time.getAttribute("datetime"))) / 1000;
      if (time.hasAttribute("data-since")) time.textContent = span(Math.max(0, seconds));
      else if (seconds < -1) time.textContent = `in ${span(-seconds)}`;
      else time.textContent = seconds < 2 ? "just now" : `${span(seconds)} ago`;
    });
  };
  times();
  setInterval(times, 1000);

  const busy = (part) => {
    const active = document.activeElement;
    if (part.querySelector(":popover-open")) return true;
    return part.contains(active) && active.matches("input:not([type=checkbox]):not([type=range]), textarea, select");
  };
  const exchange = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    fresh.querySelectorAll("[data-live]").forEach((next) => {
      const part = document.getElementById(next.id), said = next.innerHTML;
      if (!part || parts.get(next.id) === said || busy(part)) return;
      const kept = [...part.querySelectorAll("[data-keep]:checked")].map((one) => one.dataset.keep);
      const open = [...part.querySelectorAll("details")].map((one) => one.open);
      const focus = part.contains(document.activeElement) ? path(part, document.activeElement) : null;
      const row = [...part.querySelectorAll("[data-row]")].findIndex((one) => one.classList.contains("at-row"));
      const scrolled = part.scrollTop;
      parts.set(next.id, said);
      part.replaceChildren(...next.childNodes);
      part.scrollTop = scrolled;
      kept.forEach((name) => { const box = part.querySelector(`[data-keep="${CSS.escape(name)}"]`); if (box) box.checked = true; });
      part.querySelectorAll("details").forEach((one, at) => { if (open[at] !== undefined) one.open = open[at]; });
      if (focus) follow(part, focus)?.focus({ preventScroll: true });
      if (row >= 0) part.querySelectorAll("[data-row]")[row]?.classList.add("at-row");
    });
    times();
    document.dispatchEvent(new Event("stepwell:read"));
  };
  const path = (part, node) => { const way = []; for (; node !== part; node = node.parentNode) way.unshift([...node.parentNode.children].indexOf(node)); return way; };
  const follow = (part, way) => way.reduce((node, at) => node && node.children[at], part);

  let tag = null, reading = false, again = false, last = 0;
  const read = async (address) => {
    if (reading) { again = true; return; }
    const wait = LEAST - (Date.now() - last);
    reading = true;
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    last = Date.now();
    try {
      const headers = { "x-stepwell-again": "1", accept: "text/html" };
      if (tag && !address) headers["if-none-match"] = tag;
      const answer = await fetch(address || location.href, { headers, cache: "no-store", credentials: "same-origin" });
      if (answer.status === 401 || answer.redirected) location.reload();
      if (answer.ok) { tag = answer.headers.get("etag"); exchange(await answer.text()); }
    } catch { /* the next hint reads again */ }
    reading = false;
    if (again) { again = false; read(); }
  };

  const button = document.getElementById("live");
  let source = null;
  const wanted = () => sessionStorage.getItem("stepwell-live") !== "off" && !document.hidden;
  const connect = () => {
    if (source) { source.close(); source = null; }
    button?.setAttribute("aria-pressed", String(sessionStorage.getItem("stepwell-live") !== "off"));
    button?.classList.remove("lost");
    if (!button || !wanted() || !document.querySelector("[data-live]")) return;
    source = new EventSource(`${root}/live`);
    source.addEventListener("look", () => { button.classList.remove("lost"); read(); });
    source.addEventListener("error", () => button.classList.add("lost"));
  };
  const toggle = () => { sessionStorage.setItem("stepwell-live", sessionStorage.getItem("stepwell-live") === "off" ? "on" : "off"); connect(); };
  button?.addEventListener("click", toggle);
  document.addEventListener("visibilitychange", () => { connect(); if (wanted()) read(); });
  addEventListener("pagehide", () => source?.close());
  connect();

  // A control with `data-param` puts its value into the address, and the page reads itself again there.
  document.addEventListener("input", (event) => {
    const name = event.target.dataset?.param;
    if (!name) return;
    const address = new URL(location.href);
    address.searchParams.set(name, event.target.value);
    history.replaceState(null, "", address);
    document.querySelectorAll(`[data-shows="${name}"]`).forEach((one) => { one.textContent = event.target.value; });
    tag = null;
    read(address.href);
  });
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest?.("[data-copy]");
    if (copy) {
      const from = copy.dataset.copy === "previous" ? copy.previousElementSibling : copy.closest(".value").querySelector("pre");
      try { await navigator.clipboard.writeText(from.textContent); copy.textContent = "Copied"; } catch { copy.textContent = "Not allowed"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
      return;
    }
    const row = event.target.closest?.("[data-row]");
    if (row && !event.target.closest("a, button, input, label, select, summary, pre")) row.querySelector("a.main")?.click();
  });
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    const theme = dark ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    document.cookie = `stepwell_theme=${theme}; path=${root || "/"}; max-age=31536000; samesite=strict`;
  });
  window.stepwell = { read, toggle };
})();
