"""The parts dashboards are made of: panels, rows and the frame around them."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's grid is this wide.
WIDTH = 24


def rate(metric, labels="", by="model"):
    """The rate of a counter for each `by`."""
    return f"sum by ({by}) (rate({metric}{{{selector(labels)}}}[$__rate_interval]))"


def selector(labels=""):
    """The series of the models chosen, and of whatever else is asked."""
    return ", ".join(part for part in ['model=~"$model"', labels] if part)


def quantile(part, metric, by="model"):
    """A quantile of a histogram, whether it was scraped as a classic one or as a native one."""
    chosen = f"{{{selector()}}}[$__rate_interval]"
    classic = f"sum by ({by}, le) (rate({metric}_bucket{chosen}))"
    native = f"sum by ({by}) (rate({metric}{chosen}))"
    return f"histogram_quantile({part}, {classic}) or histogram_quantile({part}, {native})"


def mean(metric, by="model"):
    """The mean of a histogram, whether it was scraped as a classic one or as a native one."""
    chosen = f"{{{selector()}}}[$__rate_interval]"
    total, count = (f"sum by ({by}) (rate({metric}_{part}{chosen}))" for part in ("sum", "count"))
    native = f"sum by ({by}) (rate({metric}{chosen}))"
    return f"{total} / {count} or histogram_sum({native}) / histogram_count({native})"


def panel(title, description, targets, *, kind="timeseries", unit="short", width=12, **options):
    """One panel. `targets` are pairs of an expression and a legend."""
    height = 4 if kind == "stat" else 8
    defaults = {"unit": unit, **options.pop("defaults", {})}
    if kind == "timeseries":
        custom = {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never", "spanNulls": False}
        defaults.setdefault("min", 0)
        defaults["custom"] = {**custom, **options.pop("custom", {})}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": options.pop("overrides", [])},
        "gridPos": {"w": width, "h": height},
        "options": {**OPTIONS[kind], **options},
        "targets": [
            target(expression, legend, "ABCDEFGH"[place], kind)
            for place, (expression, legend) in enumerate(targets)
        ],
    }


OPTIONS = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "textMode": "value_and_name",
    },
    "table": {"showHeader": True},
    "bargauge": {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"]},
    },
}


def target(expression, legend, reference, kind):
    """One query of a panel."""
    query = {
        "datasource": DATASOURCE,
        "expr": expression,
        "legendFormat": legend,
        "refId": reference,
    }
    if kind in ("table", "stat", "bargauge"):
        query["instant"] = True
    if kind == "table":
        query["format"] = "table"
    return query


def thresholds(*steps):
    """Colours by value: the first colour, then pairs of a bound and the colour from there on."""
    first, *rest = steps
    values = [{"color": first, "value": None}, *({"color": c, "value": v} for v, c in rest)]
    return {
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": values},
    }


def dashed(name):
    """Draws the series of that name as a dashed line without an area."""
    return {
        "matcher": {"id": "byRegexp", "options": name},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
            {"id": "custom.fillOpacity", "value": 0},
        ],
    }


STACKED = {"stacking": {"mode": "normal"}, "fillOpacity": 40}


def dashboard(uid, title, description, rows):
    """A dashboard of rows, each a question and the panels that answer it."""
    panels, top = [], 0
    for question, members in rows:
        panels.append(
            {
                "type": "row",
                "title": question,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        top += 1
        left = tallest = 0
        for member in members:
            place = member["gridPos"]
            if left + place["w"] > WIDTH:
                left, top, tallest = 0, top + tallest, 0
            place.update(x=left, y=top)
            left += place["w"]
            tallest = max(tallest, place["h"])
            panels.append(member)
        top += tallest
    for number, member in enumerate(panels, 1):
        member["id"] = number
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["sluice"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "Sluice",
                "tags": ["sluice"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": variables()},
        "annotations": {"list": [reloads()]},
        "panels": panels,
    }


def variables():
    """The choices at the top of every dashboard."""
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }
    model = {
        "name": "model",
        "label": "Model",
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": "label_values(sluice_objective_seconds, model)", "refId": "models"},
        "definition": "label_values(sluice_objective_seconds, model)",
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
    return [source, model]


def reloads():
    """A mark wherever a configuration was put in force."""
    return {
        "name": "Configuration loaded",
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": "blue",
        "expr": "changes(sluice_config_last_reload_success_timestamp_seconds[1m]) > 0",
        "titleFormat": "configuration loaded",
    }
