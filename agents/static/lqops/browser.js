/* What is set for this browser alone: the density of lists, and notifications of decisions that wait. Pages work without it. */
(function () {
  "use strict";

  var DENSITY = "lqops.density";
  var NOTIFY = "lqops.notify";
  var LAST = "lqops.notified";
  var EVERY_MS = 10000;
  var BLOCKED = "The browser blocks notifications of this site. Allow them in its settings.";

  function setDensity() {
    document.documentElement.classList.toggle("lq-roomy", localStorage.getItem(DENSITY) === "comfortable");
  }

  function isOn() {
    return localStorage.getItem(NOTIFY) === "yes" && "Notification" in window && Notification.permission === "granted";
  }

  function waiting(place) {
    var last = localStorage.getItem(LAST) || "0";
    return fetch(place.dataset.waiting.replace(/0\/$/, last + "/"), { credentials: "same-origin" }).then(function (answer) {
      return answer.ok && !answer.redirected ? answer.json() : Promise.reject(new Error("gone"));
    });
  }

  // Several open pages of one browser show a notification once: it has the same tag in each.
  function show(found) {
    found.rows.forEach(function (row) {
      if (row.id > Number(localStorage.getItem(LAST) || 0)) {
        var shown = new Notification(row.title, { tag: "lqops-" + row.id, body: row.text });
        shown.addEventListener("click", function () {
          window.focus();
          location.assign(row.link);
        });
      }
    });
    localStorage.setItem(LAST, String(Math.max(found.newest, Number(localStorage.getItem(LAST) || 0))));
  }

  function follow(place) {
    setTimeout(function () {
      (isOn() ? waiting(place).then(show) : Promise.resolve())
        .catch(function () {})
        .then(function () { follow(place); });
    }, EVERY_MS);
  }

  // What waits already is on the pages: only what comes from now on is shown.
  function switchOn(field, say, place) {
    Notification.requestPermission()
      .then(function (answer) {
        if (answer !== "granted") {
          throw new Error(BLOCKED);
        }
        return waiting(place);
      })
      .then(function (found) {
        localStorage.setItem(LAST, String(found.newest));
        localStorage.setItem(NOTIFY, "yes");
        say.textContent = "On, while a page of this site is open.";
      })
      .catch(function (error) {
        field.checked = false;
        say.textContent = error.message;
      });
  }

  function offer(card, place) {
    var field = card.querySelector("[data-notify]");
    var density = card.querySelector("[data-density]");
    var say = card.querySelector("[role=status]");
    card.hidden = false;
    field.checked = isOn();
    field.disabled = !("Notification" in window) || !window.isSecureContext;
    field.addEventListener("change", function () {
      if (field.checked) {
        switchOn(field, say, place);
      } else {
        localStorage.removeItem(NOTIFY);
        say.textContent = "Off.";
      }
    });
    density.value = localStorage.getItem(DENSITY) || "compact";
    density.addEventListener("change", function () {
      localStorage.setItem(DENSITY, density.value);
      setDensity();
    });
  }

  setDensity();
  document.addEventListener("DOMContentLoaded", function () {
    var place = document.querySelector("[data-waiting]");
    if (place) {
      follow(place);
      document.querySelectorAll("[data-browser]").forEach(function (card) { offer(card, place); });
    }
  });
})();
