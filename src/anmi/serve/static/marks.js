"use strict";
// Texts of the collection are only ever read from attributes and never written into the page as HTML.
const told = document.getElementById("told");
const csrf = document.querySelector("meta[name=csrf]").content;
const items = () => [...document.querySelectorAll("[data-item]")];
let quiet = 0;

function say(text, bad) {
  told.textContent = text;
  told.classList.toggle("bad", Boolean(bad));
  clearTimeout(quiet);
  quiet = setTimeout(() => { told.textContent = ""; }, bad ? 10000 : 2500);
}

function show(group, relevance) {
  // The same pair may stand on the page several times, once for each system that found it.
  for (const other of document.querySelectorAll(".marks")) {
    if (other.dataset.query !== group.dataset.query || other.dataset.document !== group.dataset.document) continue;
    for (const button of other.querySelectorAll("button")) {
      if (button.dataset.mark === "") button.hidden = relevance === null;
      else button.setAttribute("aria-pressed", String(button.dataset.mark === String(relevance)));
    }
  }
}

// A question that is no query yet is sent with each mark, as what it is to be.
function asked() {
  const field = document.querySelector(".asked");
  return field ? { question: field.dataset.question, split: field.querySelector("input:checked").value } : {};
}

async function mark(group, value) {
  const relevance = value === "" ? null : Number(value);
  try {
    const answer = await fetch("/api/mark", {
      method: "POST",
      headers: { "content-type": "application/json", "x-anmi-csrf": csrf },
      body: JSON.stringify({ query_id: group.dataset.query, document_id: group.dataset.document, relevance, ...asked() }),
    });
    const text = await answer.text();
    if (!answer.ok) {
      let reason = text;
      try { reason = JSON.parse(text).error; } catch { /* A sentence as it is. */ }
      say("not marked: " + reason, true);
      return;
    }
    show(group, relevance);
    say(relevance === null ? "taken back" : relevance ? "marked as relevant" : "marked as not relevant");
  } catch {
    say("not marked: the page is not served any more; start `kedro anmi serve` again", true);
  }
}

function move(step) {
  const all = items();
  if (!all.length) return;
  const here = all.findIndex((item) => item.contains(document.activeElement));
  const next = here < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + step, 0), all.length - 1);
  all[next].focus({ focusVisible: true });
  all[next].scrollIntoView({ block: "nearest" });
}

function follow(rel) {
  const link = document.querySelector(`a[rel=${rel}]`);
  if (link) link.click();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".marks button");
  if (button) mark(button.closest(".marks"), button.dataset.mark);
});

document.addEventListener("change", (event) => {
  // The split goes with a mark: the first that stands says it again.
  const button = event.target.matches(".asked input") && document.querySelector(".marks [aria-pressed=true]");
  if (button) mark(button.closest(".marks"), button.dataset.mark);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "[") follow("prev");
  else if (event.key === "]") follow("next");
  else if (event.key === "Enter" && event.target.matches("[data-item]")) event.target.querySelector("a")?.click();
  else if ("rnu".includes(event.key)) {
    const group = document.activeElement.closest("[data-item]")?.querySelector(".marks");
    const button = group?.querySelector(`[data-mark="${{ r: "1", n: "0", u: "" }[event.key]}"]`);
    if (button && !button.hidden) mark(group, button.dataset.mark);
  } else return;
  event.preventDefault();
});
