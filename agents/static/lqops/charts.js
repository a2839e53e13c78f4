/* Draws the charts of a page from the JSON beside them. Without it the tables below the charts have the same figures. */
(function () {
  "use strict";

  var drawn = [];

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--lq-" + name).trim();
  }

  function money(amount) {
    if (amount > 0 && amount < 0.0001) {
      return "<$0.0001";
    }
    return "$" + amount.toLocaleString("en-US", {
      minimumFractionDigits: 2,
      maximumFractionDigits: amount >= 1 ? 2 : 4
    });
  }

  function length(seconds) {
    if (seconds < 10) {
      return Number(seconds.toFixed(1)) + " s";
    }
    if (seconds < 120) {
      return Math.round(seconds) + " s";
    }
    if (seconds < 7200) {
      return Math.round(seconds / 60) + " min";
    }
    return seconds < 172800 ? Math.round(seconds / 3600) + " h" : Math.round(seconds / 86400) + " days";
  }

  var UNITS = {
    usd: money,
    seconds: length,
    count: function (number) { return number.toLocaleString("en-US"); }
  };
  var MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

  function dayText(day) {
    return Number(day.slice(8, 10)) + " " + MONTHS[Number(day.slice(5, 7)) - 1];
  }

  function datasets(data) {
    var isLine = data.type === "line";
    return data.series.map(function (one) {
      var paint = color(one.color);
      return {
        label: one.name,
        data: one.values,
        backgroundColor: paint,
        borderColor: paint,
        borderWidth: isLine ? 2 : 0,
        pointRadius: isLine ? 2 : 0,
        pointHoverRadius: 4,
        spanGaps: true,
        tension: 0,
        maxBarThickness: 28,
        stack: isLine ? undefined : "all"
      };
    });
  }

  // A step of the axis that people read at once: 5 minutes, not 1,000 seconds.
  function step(data) {
    if (data.unit !== "seconds") {
      return undefined;
    }
    var most = Math.max.apply(null, data.series.map(function (one) { return Math.max.apply(null, one.values); }));
    return [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800].find(function (one) {
      return most / one <= 5;
    });
  }

  function options(data) {
    var unit = UNITS[data.unit];
    var isStacked = data.type === "bar";
    var line = color("line");
    var faint = color("faint");
    return {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: "index", intersect: false },
      scales: {
        x: {
          stacked: isStacked,
          grid: { display: false },
          border: { color: line },
          ticks: { color: faint, maxRotation: 0, autoSkipPadding: 16, font: { size: 11 } }
        },
        y: {
          stacked: isStacked,
          beginAtZero: true,
          border: { display: false },
          grid: { color: line },
          ticks: {
            color: faint,
            callback: function (value) { return unit(value); },
            font: { size: 11 },
            maxTicksLimit: 7,
            precision: data.unit === "count" ? 0 : undefined,
            stepSize: step(data)
          }
        }
      },
      plugins: {
        legend: {
          display: data.series.length > 1,
          position: "bottom",
          labels: { color: faint, boxWidth: 10, boxHeight: 10, padding: 12, font: { size: 11 } }
        },
        tooltip: {
          filter: function (item) { return item.raw !== null && (item.raw !== 0 || data.series.length === 1); },
          callbacks: { label: function (item) { return item.dataset.label + ": " + unit(item.raw); } }
        }
      }
    };
  }

  function draw(canvas) {
    var data = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
    drawn.push({
      data: data,
      chart: new window.Chart(canvas, {
        type: data.type,
        data: { labels: data.days.map(dayText), datasets: datasets(data) },
        options: options(data)
      })
    });
  }

  // The theme can be changed while a page is open.
  function repaint() {
    drawn.forEach(function (one) {
      one.chart.data.datasets = datasets(one.data);
      one.chart.options = options(one.data);
      one.chart.update();
    });
  }

  document.addEventListener("DOMContentLoaded", function () {
    document.querySelectorAll("canvas[data-chart]").forEach(draw);
    new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["class"] });
    document.querySelectorAll("[data-submits]").forEach(function (field) {
      field.addEventListener("change", function () { field.form.submit(); });
    });
  });
})();
