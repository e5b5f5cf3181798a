// Keys: every one presses a link or button that is on the page, so that nothing is reached by keys alone.
"use strict";
(() => {
  const rows = () => [...document.querySelectorAll("main [data-row]")].filter((row) => row.offsetParent !== null);
  const typing = (target) => target.matches?.("input:not([type=checkbox]):not([type=range]), textarea, select");
  const linkOf = (row) => row.matches("a") ? row : row.querySelector("a.main");
  let going = 0;
  const current = () => rows().findIndex((row) => row.classList.contains("at-row"));
  const stand = (at) => {
    const all = rows();
    if (!all.length) return;
    const place = Math.max(0, Math.min(all.length - 1, at));
    all.forEach((row, number) => row.classList.toggle("at-row", number === place));
    linkOf(all[place])?.focus({ preventScroll: true });
    all[place].scrollIntoView({ block: "nearest" });
  };
  const press = (key) => {
    const target = [...document.querySelectorAll(`[data-key="${key}"]`)].find((one) => one.offsetParent !== null);
    if (target) target.click();
    return Boolean(target);
  };
  const nextFailed = () => {
    const failed = rows().filter((row) => row.hasAttribute("data-failed"));
    if (!failed.length) return press("e");
    const after = failed.find((row) => rows().indexOf(row) > current()) || failed[0];
    stand(rows().indexOf(after));
    linkOf(after)?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    return true;
  };
  const travel = (by) => {
    const slider = document.querySelector("[data-param]");
    if (!slider || slider === document.activeElement) return false;
    slider.value = Number(slider.value) + by;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    return true;
  };
  const count = () => {
    const chosen = document.querySelectorAll('input[name="id"]:checked').length, told = document.getElementById("selected");
    if (told) told.textContent = chosen ? `${chosen} selected` : "Select runs, or";
  };
  const doors = {
    "/": () => { const search = document.getElementById("search"); search?.focus(); search?.select(); },
    j: () => stand(current() + 1),
    k: () => stand(current() < 0 ? 0 : current() - 1),
    x: () => { const box = rows()[current()]?.querySelector('input[type="checkbox"]'); if (box) { box.checked = !box.checked; count(); } },
    l: () => window.stepwell.toggle(),
    e: nextFailed,
    "?": () => document.getElementById("keys")?.togglePopover(),
    ArrowLeft: () => travel(-1),
    ArrowRight: () => travel(1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) { if (event.key === "Escape") event.target.blur(); return; }
    if (document.querySelector("[popover]:popover-open") && event.key !== "?") return;
    if (Date.now() - going < 1500) {
      going = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { going = Date.now(); return; }
    const door = doors[event.key];
    if (door) { if (door() !== false) event.preventDefault(); return; }
    if (/^[a-z]$/.test(event.key) && press(event.key)) event.preventDefault();
  });
  document.addEventListener("change", (event) => {
    if (event.target.id === "every") document.querySelectorAll('input[name="id"]').forEach((box) => { box.checked = event.target.checked; });
    count();
  });
  document.addEventListener("toggle", (event) => {
    if (event.newState === "open") event.target.querySelector("input:not([type=hidden]), textarea, select, summary, button")?.focus();
  }, true);
  // What is no JSON is said beside its field and stays there, in place of a page that has lost it.
  const jsonFault = (text) => { try { if (text.trim()) JSON.parse(text); return ""; } catch (error) { return `This is no JSON: ${error.message}`; } };
  document.addEventListener("submit", (event) => {
    for (const field of event.target.querySelectorAll("textarea[data-json]")) {
      const wrong = event.submitter?.formNoValidate ? "" : jsonFault(field.value);
      field.setCustomValidity(wrong);
      if (wrong) { event.preventDefault(); field.reportValidity(); return; }
    }
  });
  document.addEventListener("input", (event) => { if (event.target.matches?.("textarea[data-json]")) event.target.setCustomValidity(""); });
  document.addEventListener("stepwell:read", count);
})();
